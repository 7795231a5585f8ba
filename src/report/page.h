// The page's own files, embedded at build time from web/.
#pragma once

namespace vitrine::page {

extern const char* const kTemplate;  // report.html with places such as {{title}}, filled in this
                                     // order: title, css, data, js, timelines
extern const char* const kStyle;
extern const char* const kScript;

}  // namespace vitrine::page
