// The JSON that the report's page shows: all numbers are computed here, the page only draws.
#pragma once

#include "core/json.h"
#include "report/report.h"

namespace vitrine {

// As the typedef Page of web/data.js says. The timelines' columns are not in it: write_report puts
// each in an element of its own.
Json report_data(const ReportInput& input);

}  // namespace vitrine
