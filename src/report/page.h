// The page's own files, embedded at build time from web/.
#pragma once

namespace vitrine::page {

extern const char* const kTemplate;  // report.html with {{title}}, {{css}}, {{data}}, {{js}}
extern const char* const kStyle;
extern const char* const kScript;

}  // namespace vitrine::page
