#pragma once
// A Chart is one SVG picture with axes, for light and dark mode, that stays small for any number of
// points.
//
// ```cpp
// Chart chart{{.title = "Node runtime", .x_label = "rank", .unit = AxisUnit::microseconds},
//             {.x_max = 3, .y_max = 120.5}};
// chart.columns(std::vector{120.5, 10.0, 30.0}, {"#4e79a7"});
// chart.vertical(2, "backward");
// std::cout << chart.svg();
// ```
//
//      150 us ┤
//      100 us ┤ ██
//       50 us ┤ ██        ┆ backward         one column per point; with more points than pixels, the largest of
//        0 us ┤ ██ ▁▁ ▂▂  ┆                  those that share a pixel
//             └──────────────
//               0  1  2
//
// A Chart has no scripts and no fonts, and loads nothing. Its colours follow the reader's
// preference (prefers-color-scheme).

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <reprise/base/units.hpp>
#include <reprise/report/markup.hpp>

namespace reprise::reporting {

enum class AxisUnit : std::uint8_t { none, bytes, microseconds };

struct ChartText {
  std::string title{};
  std::string subtitle{};
  std::string x_label{};
  AxisUnit unit = AxisUnit::none;  ///< of the y axis
};

struct ChartRange {
  double x_max = 1;  ///< x runs from 0 to here
  double y_max = 1;  ///< y runs from 0 to a round number above this
};

struct LegendEntry {
  std::string color{}, label{};
};

/// Positions of marks on an axis from 0: 1, 2 or 5 times a power of ten apart, in units that suit
/// the axis's end.
struct AxisTicks {
  std::vector<double> at{};
  double step = 1;
  double unit = 1;  ///< divisor of a mark's number
  std::string suffix{};

  [[nodiscard]] double end() const { return at.back(); }
  [[nodiscard]] std::string label(std::size_t i) const;
};

/// `most`: the largest number of intervals.
[[nodiscard]] inline AxisTicks axis_ticks(double max, AxisUnit unit, int most = 6) {
  AxisTicks t;
  if (!(max > 0)) max = 1;
  if (unit == AxisUnit::bytes) {
    constexpr const char* names[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    int k = 0;
    for (; k < 6 && max / t.unit >= 1024; ++k) t.unit *= 1024;
    t.suffix = names[k];
  } else if (unit == AxisUnit::microseconds) {
    t.unit = max >= 1e6 ? 1e6 : max >= 1e3 ? 1e3 : 1;
    t.suffix = max >= 1e6 ? " s" : max >= 1e3 ? " ms" : " us";
  }
  const double rough = max / t.unit / most;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0, 10.0}) {
    t.step = factor * power;
    if (t.step >= rough) break;
  }
  // counts are whole
  if (unit == AxisUnit::none || (unit == AxisUnit::bytes && t.unit == 1))
    t.step = std::max(t.step, 1.0);
  const int steps = std::max(1, static_cast<int>(std::ceil(max / t.unit / t.step - 1e-9)));
  for (int i = 0; i <= steps; ++i) t.at.push_back(i * t.step * t.unit);
  return t;
}

/// A number with at most `digits` digits after the point, without trailing zeros.
[[nodiscard]] inline std::string short_number(double x, int digits) {
  std::array<char, 64> buffer;
  auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), x,
                              std::chars_format::fixed, digits);
  // 1e+300 has 301 digits
  if (result.ec != std::errc{})
    result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), x);
  std::string text(buffer.data(), result.ptr);
  if (text.find('.') != text.npos && text.find('e') == text.npos)
    text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

inline std::string AxisTicks::label(std::size_t i) const {
  const int digits = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  return short_number(at[i] / unit, std::min(digits, 12)) + suffix;
}

/// The points to draw if there are `room` places: of the points that share a place, the one with
/// the largest value.
[[nodiscard]] inline std::vector<std::size_t> largest_in_each(std::span<const double> values,
                                                              std::size_t room) {
  std::vector<std::size_t> picked;
  const std::size_t n = values.size(), places = std::min(n, room);
  for (std::size_t p = 0; p < places; ++p) {
    const std::size_t begin = p * n / places, end = (p + 1) * n / places;
    const auto largest = std::max_element(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                          values.begin() + static_cast<std::ptrdiff_t>(end));
    picked.push_back(static_cast<std::size_t>(largest - values.begin()));
  }
  return picked;
}

/// The opening tag with the styles that all pictures share, a background, a title and a line below
/// it.
[[nodiscard]] inline std::string svg_begin(double width, double height, std::string_view title,
                                           std::string_view subtitle) {
  constexpr std::string_view style =
      "<style>.reprise{font:13px system-ui,-apple-system,'Segoe "
      "UI',Roboto,sans-serif;max-width:100%;height:auto}"
      ".reprise .paper{fill:#fff}.reprise text{fill:#1f2328}.reprise "
      ".title{font-size:16px;font-weight:600}"
      ".reprise .muted{fill:#59636e}.reprise .grid{stroke:#d8dee4;fill:none}.reprise "
      ".mark{stroke:#59636e;stroke-dasharray:4 4;fill:none}"
      ".reprise path.cap{stroke:#cf222e;stroke-width:2;stroke-dasharray:8 4;fill:none}.reprise "
      "text.cap{fill:#cf222e}"
      ".reprise .halo{stroke:#fff;fill:none}.reprise path.halo{stroke-width:4;opacity:.7}"
      ".reprise text.halo{stroke-width:4;stroke-linejoin:round;fill:none}"
      "@media(prefers-color-scheme:dark){.reprise .paper{fill:#0d1117}.reprise "
      "text{fill:#e6edf3}.reprise .muted{fill:#9198a1}"
      ".reprise .grid{stroke:#30363d}.reprise .mark{stroke:#9198a1}.reprise "
      "path.cap{stroke:#ff7b72}"
      ".reprise text.cap{fill:#ff7b72}.reprise .halo{stroke:#0d1117}}</style>\n";
  const std::string w = short_number(width, 0), h = short_number(height, 0);
  std::string label{title};
  if (!subtitle.empty()) (label += ": ") += subtitle;
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"reprise\" viewBox=\"0 0 " +
                    w + " " + h + "\" width=\"" + w + "\" height=\"" + h +
                    "\" role=\"img\" aria-label=\"" + markup_text(label) + "\">\n" +
                    std::string(style) + "<rect class=\"paper\" width=\"" + w + "\" height=\"" + h +
                    "\"/>\n<text class=\"title\" x=\"16\" y=\"24\">" + markup_text(title) +
                    "</text>\n";
  if (!subtitle.empty())
    out += "<text class=\"muted\" x=\"16\" y=\"43\">" + markup_text(subtitle) + "</text>\n";
  return out;
}

class Chart {
 public:
  static constexpr double width = 1200, height = 420;
  static constexpr double left = 92, right = 24, top = 62, bottom = 52;
  static constexpr double plot_width = width - left - right, plot_height = height - top - bottom;
  /// If there are more points, several share a column.
  static constexpr std::size_t room = static_cast<std::size_t>(plot_width);

  Chart(ChartText text, ChartRange range)
      : text_(std::move(text)),
        x_max_(range.x_max > 0 ? range.x_max : 1),
        y_(axis_ticks(range.y_max, text_.unit)) {}

  /// One column per value. `colors` has one colour for all, or one for each.
  void columns(std::span<const double> values, const std::vector<std::string_view>& colors) {
    const std::vector<std::size_t> picked = largest_in_each(values, room);
    std::vector<std::pair<std::string_view, std::string>> paths;
    const double step = plot_width / static_cast<double>(std::max<std::size_t>(picked.size(), 1));
    const double bar = step > 3 ? step * 0.8 : step;
    for (std::size_t p = 0; p < picked.size(); ++p) {
      if (!(values[picked[p]] > 0)) continue;
      const std::string_view color = colors.size() == 1 ? colors.front() : colors[picked[p]];
      auto it = std::find_if(paths.begin(), paths.end(),
                             [&](const auto& path) { return path.first == color; });
      if (it == paths.end()) it = paths.insert(paths.end(), {color, ""});
      const double x = left + static_cast<double>(p) * step + (step - bar) / 2;
      it->second += "M" + coordinate(x) + " " + coordinate(y_of(0)) + "V" +
                    coordinate(y_of(values[picked[p]])) + "h" + coordinate(bar) + "V" +
                    coordinate(y_of(0));
    }
    for (const auto& [color, path] : paths)
      body_ += "<path fill=\"" + std::string(color) + "\" d=\"" + path + "\"/>\n";
  }

  /// Stacked areas: series[s][i] is the part of series s at point i.
  void stacked_steps(const std::vector<std::vector<double>>& series,
                     const std::vector<std::string_view>& colors) {
    if (series.empty()) return;
    std::vector<double> total(series.front().size(), 0);
    for (const auto& s : series)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += s[i];
    const std::vector<std::size_t> picked = largest_in_each(total, room);
    // Drawn from the whole stack down, each over the one before: only upper edges need points.
    for (std::size_t s = series.size(); s-- > 0;) {
      body_ += "<path fill=\"" + std::string(colors[s]) + "\" d=\"M" + coordinate(left) + " " +
               coordinate(y_of(0));
      double last = y_of(0);
      for (std::size_t p = 0; p < picked.size(); ++p) {
        const double y = rounded(y_of(total[picked[p]]));
        if (y != last)
          body_ += "H" + coordinate(x_of_place(p, picked.size())) + "V" + coordinate(y);
        last = y;
      }
      body_ += "H" + coordinate(left + plot_width) + "V" + coordinate(y_of(0)) + "\"/>\n";
      for (std::size_t i = 0; i < total.size(); ++i) total[i] -= series[s][i];
    }
  }

  /// A line over the whole width; point i of n is at (i + 1/2) / n.
  void curve(std::span<const double> values, std::string_view color) {
    const std::vector<std::size_t> picked = largest_in_each(values, room / 2);
    body_ += "<path fill=\"none\" stroke-width=\"2\" stroke-linejoin=\"round\" stroke=\"" +
             std::string(color) + "\" d=\"";
    for (std::size_t p = 0; p < picked.size(); ++p)
      body_ += (p == 0 ? "M" : "L") +
               coordinate(x_of_place(p, picked.size()) +
                          plot_width / static_cast<double>(picked.size()) / 2) +
               " " + coordinate(y_of(values[picked[p]]));
    body_ += "\"/>\n";
  }

  /// A rectangle in data coordinates, with a tooltip.
  void box(double x0, double x1, double y0, double y1, std::string_view color,
           std::string_view tooltip) {
    body_ += "<rect fill=\"" + std::string(color) + "\" x=\"" + coordinate(x_of(x0)) + "\" y=\"" +
             coordinate(y_of(y1)) + "\" width=\"" + coordinate(x_of(x1) - x_of(x0)) +
             "\" height=\"" + coordinate(y_of(y0) - y_of(y1)) + "\"><title>" +
             markup_text(tooltip) + "</title></rect>\n";
  }

  /// A dashed line at x, with a word next to it.
  void vertical(double x, std::string_view text) {
    const double at = x_of(x);
    const bool flip = at > left + plot_width * 0.85;
    mark_line("mark", "M" + coordinate(at) + " " + coordinate(top) + "v" + coordinate(plot_height));
    mark_text("muted", at + (flip ? -6 : 6), top + 13, flip ? "end" : "start", text);
  }

  /// A line at y across the plot, such as a budget.
  void horizontal(double y, std::string_view text) {
    mark_line("cap",
              "M" + coordinate(left) + " " + coordinate(y_of(y)) + "h" + coordinate(plot_width));
    mark_text("cap", left + 6, y_of(y) - 6, "start", text);
  }

  /// Text centred above a point.
  void label(double x, double y, std::string_view text) {
    mark_text("", x_of(x), y_of(y) - 6, "middle", text);
  }

  /// Names under the x axis instead of numbers, evenly spread.
  void categories(std::vector<std::string> names) { categories_ = std::move(names); }

  void legend(std::vector<LegendEntry> entries) { legend_ = std::move(entries); }

  [[nodiscard]] std::string svg() const {
    const double shift = legend_fits() ? 0 : legend_line;
    std::string out = svg_begin(width, height + shift, text_.title, text_.subtitle);
    add_legend(out);
    if (shift > 0) out += "<g transform=\"translate(0 " + coordinate(shift) + ")\">\n";
    add_axes(out);
    return out + body_ + marks_ + (shift > 0 ? "</g>\n" : "") + "</svg>\n";
  }

 private:
  static double rounded(double x) { return std::round(x * 10) / 10; }
  static std::string coordinate(double x) { return short_number(x, 1); }
  [[nodiscard]] double x_of(double x) const { return left + plot_width * x / x_max_; }
  [[nodiscard]] double y_of(double y) const { return top + plot_height * (1 - y / y_.end()); }
  static double x_of_place(std::size_t p, std::size_t places) {
    return left + plot_width * static_cast<double>(p) / static_cast<double>(places);
  }

  // Marks are drawn over everything else, so each has a halo in the background colour.
  void mark_line(const std::string& kind, const std::string& path) {
    marks_ += "<path class=\"halo\" d=\"" + path + "\"/><path class=\"" + kind + "\" d=\"" + path +
              "\"/>\n";
  }
  void mark_text(const std::string& kind, double x, double y, const std::string& anchor,
                 std::string_view text) {
    const std::string rest = "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) +
                             "\" text-anchor=\"" + anchor + "\">" + markup_text(text) + "</text>";
    marks_ +=
        "<text aria-hidden=\"true\" class=\"halo" + rest + "<text class=\"" + kind + rest + "\n";
  }

  // Estimates the width of the text.
  static double width_of(const LegendEntry& entry) {
    return 7.2 * static_cast<double>(entry.label.size()) + 38;
  }
  [[nodiscard]] double legend_width() const {
    double sum = 0;
    for (const LegendEntry& entry : legend_) sum += width_of(entry);
    return sum;
  }
  [[nodiscard]] bool legend_fits() const {
    return 16 + 9.5 * static_cast<double>(text_.title.size()) + legend_width() <= width - right;
  }

  // To the right of the title if there is space, else on a line of its own.
  void add_legend(std::string& out) const {
    const double y = legend_fits() ? 24 : 43 + legend_line;
    double x = legend_fits() ? width - right - legend_width() : 16;
    for (const LegendEntry& entry : legend_) {
      out += "<rect x=\"" + coordinate(x) + "\" y=\"" + coordinate(y - 11) +
             "\" width=\"12\" height=\"12\" rx=\"2\" fill=\"" + entry.color + "\"/><text x=\"" +
             coordinate(x + 17) + "\" y=\"" + coordinate(y) + "\">" + markup_text(entry.label) +
             "</text>\n";
      x += width_of(entry);
    }
  }

  void add_axes(std::string& out) const {
    for (std::size_t i = 0; i < y_.at.size(); ++i) {
      const std::string y = coordinate(y_of(y_.at[i]));
      out += "<path class=\"grid\" d=\"M" + coordinate(left) + " " + y + "h" +
             coordinate(plot_width) + "\"/><text class=\"muted\" x=\"" + coordinate(left - 8) +
             "\" y=\"" + coordinate(y_of(y_.at[i]) + 4) + "\" text-anchor=\"end\">" + y_.label(i) +
             "</text>\n";
    }
    const std::string y = coordinate(top + plot_height + 18);
    if (categories_.empty()) {
      const AxisTicks x = axis_ticks(x_max_, AxisUnit::none, 12);
      for (std::size_t i = 0; i < x.at.size() && x.at[i] <= x_max_; ++i)
        out += "<text class=\"muted\" x=\"" + coordinate(x_of(x.at[i])) + "\" y=\"" + y +
               "\" text-anchor=\"middle\">" + x.label(i) + "</text>\n";
    }
    for (std::size_t i = 0; i < categories_.size(); ++i)
      out += "<text class=\"muted\" x=\"" +
             coordinate(left + plot_width * (static_cast<double>(i) + 0.5) /
                                   static_cast<double>(categories_.size())) +
             "\" y=\"" + y + "\" text-anchor=\"middle\">" + markup_text(categories_[i]) +
             "</text>\n";
    out += "<text class=\"muted\" x=\"" + coordinate(left + plot_width / 2) + "\" y=\"" +
           coordinate(height - 12) + "\" text-anchor=\"middle\">" + markup_text(text_.x_label) +
           "</text>\n";
  }

  static constexpr double legend_line = 22;

  ChartText text_;
  double x_max_;
  AxisTicks y_;
  std::string body_, marks_;
  std::vector<LegendEntry> legend_;
  std::vector<std::string> categories_;
};

}  // namespace reprise::reporting
