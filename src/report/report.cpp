// Puts style, script, data and timelines into the page's template.
#include "report/report.h"

#include <string_view>

#include "core/json.h"
#include "report/page.h"
#include "report/report_data.h"

namespace vitrine {

namespace {

std::string html_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// JSON inside a <script> element: "</script>" and "<!--" in a name must not end or change it.
std::string script_safe(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void write_report(const ReportInput& input, const std::string& path) {
  const std::string data =
      script_safe(report_data(input).dump(-1, ' ', false, Json::error_handler_t::replace));
  // The timelines come last, so that the page is drawn before they are read.
  std::string timelines;
  for (size_t i = 0; i < input.timelines.size(); ++i) {
    timelines += "<script type=\"text/plain\" id=\"timeline-" + std::to_string(i) + "\">" +
                 input.timelines[i].base64 + "</script>\n";
  }
  // One pass over the template, so that braces inside the data are never taken for a place.
  const std::string title = html_escaped(input.title);
  const std::pair<std::string_view, std::string_view> places[] = {{"{{title}}", title},
                                                                  {"{{css}}", page::kStyle},
                                                                  {"{{data}}", data},
                                                                  {"{{js}}", page::kScript},
                                                                  {"{{timelines}}", timelines}};
  std::string_view rest = page::kTemplate;
  std::string out;
  for (const auto& [place, text] : places) {
    const size_t at = rest.find(place);
    out.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + place.size());
  }
  out.append(rest);
  write_text_file(path, out);
}

}  // namespace vitrine
