// The JSON that the report's page shows: all numbers are computed here, the page only draws.
#pragma once

#include "core/json.h"
#include "report/report.h"

namespace vitrine {

// As the typedef RunReport of web/report.js says; times in ns from the first span of all ranks.
Json report_data(const ReportInput& input);

}  // namespace vitrine
