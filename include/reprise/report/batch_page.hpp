#pragma once
// batch_page() writes one page about a model at several batch sizes: the three charts of
// batch_plots.hpp and their numbers.
//
// ```cpp
// file << batch_page("resnet152", batches, 8_GiB);
// ```
//
//   batch   peak        parameter    optimizer_state   gradient    activation   other
//   4       1.40 GiB    229.62 MiB   459.23 MiB        67.87 MiB   660.46 MiB   11.89 MiB    fits
//
// The page is self-contained and loads nothing. A cell's title has the bytes.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <reprise/report/batch_plots.hpp>
#include <reprise/report/html_assets.hpp>
#include <reprise/report/markup.hpp>

namespace reprise::reporting {

[[nodiscard]] inline std::string bytes_cell(Bytes bytes) {
  return "<td title=\"" + std::to_string(bytes.count) + "\">" + format_bytes(bytes) + "</td>";
}

[[nodiscard]] inline std::string batch_row(const BatchMemory& b, std::optional<Bytes> cap) {
  std::string row =
      "<tr><th scope=\"row\">" + std::to_string(b.batch) + "</th>" + bytes_cell(b.peak);
  Bytes other = b.peak;
  for (Role role : batch_roles) {
    row += bytes_cell(b.by_role[static_cast<std::size_t>(role)]);
    other -= b.by_role[static_cast<std::size_t>(role)];
  }
  std::string remark = cap ? b.peak <= *cap ? "fits" : "does not fit" : "";
  if (b.estimated) remark += remark.empty() ? "estimated" : ", estimated";
  return row + bytes_cell(other) + "<td class=\"text\">" + remark + "</td></tr>\n";
}

[[nodiscard]] inline std::string batch_page(const std::string& title,
                                            const std::vector<BatchMemory>& batches,
                                            std::optional<Bytes> cap = {}) {
  std::string rows, headings = "<th scope=\"col\">batch</th><th scope=\"col\">peak</th>";
  for (Role role : batch_roles)
    headings += "<th scope=\"col\">" + std::string(to_string(role)) + "</th>";
  headings += "<th scope=\"col\">other</th><th scope=\"col\" class=\"text\">" +
              (cap ? "in " + format_bytes(*cap) : std::string("remark")) + "</th>";
  for (const BatchMemory& b : batches) rows += batch_row(b, cap);
  std::string plots;
  for (const std::string& svg : {batch_peaks_svg(batches, cap), batch_curves_svg(batches, cap),
                                 batch_stacks_svg(batches, cap)})
    plots += "<div class=\"plot\" tabindex=\"0\" role=\"group\" aria-label=\"Chart\">" + svg +
             "</div>\n";
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width,initial-scale=1\">\n<meta "
         "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'\">\n<title>" +
         markup_text(title) + " — memory by batch size</title>\n<style>" +
         std::string(report_style) + "th{padding:6px 10px}</style></head>\n<body>\n<header><h1>" +
         markup_text(title) + "</h1><p class=\"note\">Memory by batch size</p></header>\n" +
         "<main>\n" + plots +
         "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
         "aria-label=\"Numbers\"><table><thead><tr>" +
         headings + "</tr></thead><tbody>\n" + rows +
         "</tbody></table></div>\n</main>\n<footer>Written by Reprise.</footer>\n</body></html>\n";
}

}  // namespace reprise::reporting
