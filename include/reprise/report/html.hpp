#pragma once
// write_html_report() writes one page about a profile: plots, tables that sort and search, and a
// memory curve that names the live storages.
//
// ```cpp
// std::ofstream page{"report.html"};
// write_html_report(page, profile, activation_metrics(profile), {.budget = 4_GiB});
// ```
//
// The page is self-contained: opened from a file it loads nothing (a content security policy
// forbids it). It follows the reader's light or dark mode, and works with the keyboard: Tab to the
// memory curve, then the arrow keys. Every column has a button that sorts. Its numbers are those of
// the CSV files (report/stats.hpp), to the last digit.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reprise/base/error.hpp>
#include <reprise/base/utf8.hpp>
#include <reprise/graph/analysis.hpp>
#include <reprise/profile/metrics.hpp>
#include <reprise/profile/profile.hpp>
#include <reprise/report/html_assets.hpp>
#include <reprise/report/markup.hpp>
#include <reprise/report/palette.hpp>
#include <reprise/report/plots.hpp>
#include <reprise/report/stats.hpp>

namespace reprise::reporting {

struct HtmlReportOptions {
  std::string title{};            ///< the graph's name if empty
  std::optional<Bytes> budget{};  ///< drawn as a line over the memory curve
  std::string note{};             ///< a sentence below the title: what was measured, and where
};

/// The data that the page's script reads. None is null, and infinity a word, because JSON has no
/// number for it. Bytes that are not UTF-8 become '?'.
using PageData = nlohmann::ordered_json;

[[nodiscard]] inline PageData page_value(const std::string& text) { return as_utf8(text); }
[[nodiscard]] inline PageData page_value(std::string_view text) { return as_utf8(text); }
[[nodiscard]] inline PageData page_value(std::int64_t number) { return number; }
[[nodiscard]] inline PageData page_value(bool yes) { return yes; }
[[nodiscard]] inline PageData page_value(std::optional<std::int64_t> number) {
  return number ? PageData(*number) : PageData(nullptr);
}
[[nodiscard]] inline PageData page_value(double number) {
  return std::isfinite(number) ? PageData(number) : PageData("inf");
}

template <class Rows, class Get>
[[nodiscard]] PageData page_list(const Rows& rows, const Get& get) {
  PageData list = PageData::array();
  for (const auto& row : rows) list.push_back(page_value(get(row)));
  return list;
}

/// For a script element, which any '<' could end.
[[nodiscard]] inline std::string script_text(const PageData& data) {
  std::string out;
  for (char c : data.dump()) {
    if (c == '<') out += "\\u003c";
    else out += c;
  }
  return out;
}

/// A table of the page: heading, kind (how the script shows the column), key (the CSV's column) and
/// the values.
class HtmlTable {
 public:
  HtmlTable(std::string id, std::string caption)
      : id_(std::move(id)), caption_(std::move(caption)) {}

  template <class Rows, class Get>
  void column(std::string_view key, std::string_view kind, std::string_view heading,
              const Rows& rows, const Get& get) {
    headings_ += "<th scope=\"col\" aria-sort=\"none\"" +
                 std::string(kind == "text" ? " class=\"text\"" : "") +
                 "><button type=\"button\">" + markup_text(heading) + "</button></th>";
    columns_.push_back({{"key", key}, {"kind", kind}, {"values", page_list(rows, get)}});
    count_ = rows.size();
  }

  [[nodiscard]] PageData data() const { return {{"count", count_}, {"columns", columns_}}; }
  [[nodiscard]] std::string html() const {
    return "<div class=\"tools\"><label for=\"" + id_ +
           "-search\">Search</label><input type=\"search\" id=\"" + id_ +
           "-search\" placeholder=\"name or op\"><span id=\"" + id_ +
           "-count\" role=\"status\"></span><button type=\"button\" id=\"" + id_ +
           "-more\" hidden>Show all</button></div>\n<div class=\"scroll\" tabindex=\"0\" "
           "role=\"region\" aria-label=\"" +
           markup_text(caption_) + "\"><table id=\"" + id_ + "\"><thead><tr>" + headings_ +
           "</tr></thead><tbody></tbody></table></div>\n";
  }

 private:
  std::string id_, caption_, headings_;
  PageData columns_ = PageData::array();
  std::size_t count_ = 0;
};

/// `measured`: whether a probe has measured bytes to show next to the simulator's.
[[nodiscard]] inline HtmlTable nodes_table(const std::vector<NodeStats>& rows, bool measured) {
  HtmlTable t{"nodes", "Nodes"};
  t.column("rank", "id", "rank", rows, [](const NodeStats& r) { return r.rank; });
  t.column("id", "id", "id", rows, [](const NodeStats& r) { return r.id; });
  t.column("name", "text", "name", rows, [](const NodeStats& r) { return r.name; });
  t.column("op", "text", "op", rows, [](const NodeStats& r) { return r.op; });
  t.column("phase", "text", "phase", rows, [](const NodeStats& r) { return r.phase; });
  t.column("time_us", "time", "time", rows, [](const NodeStats& r) { return r.time_us; });
  t.column("output_bytes", "bytes", "outputs", rows,
           [](const NodeStats& r) { return r.output_bytes; });
  t.column("workspace_bytes", "bytes", "workspace", rows,
           [](const NodeStats& r) { return r.workspace_bytes; });
  t.column("live_bytes", "bytes", "live", rows, [](const NodeStats& r) { return r.live_bytes; });
  if (measured)
    t.column("active_peak_bytes", "bytes", "measured peak", rows,
             [](const NodeStats& r) { return r.active_peak_bytes; });
  return t;
}

[[nodiscard]] inline HtmlTable activations_table(const std::vector<ActivationStats>& rows) {
  HtmlTable t{"activations", "Activations"};
  t.column("id", "id", "id", rows, [](const ActivationStats& r) { return r.id; });
  t.column("name", "text", "name", rows, [](const ActivationStats& r) { return r.name; });
  t.column("memory_bytes", "bytes", "size", rows,
           [](const ActivationStats& r) { return r.memory_bytes; });
  t.column("created_node", "id", "created", rows,
           [](const ActivationStats& r) { return r.created_node; });
  t.column("last_fw_node", "id", "last forward", rows,
           [](const ActivationStats& r) { return r.last_fw_node; });
  t.column("first_bw_node", "id", "first backward", rows,
           [](const ActivationStats& r) { return r.first_bw_node; });
  t.column("last_bw_node", "id", "last backward", rows,
           [](const ActivationStats& r) { return r.last_bw_node; });
  t.column("inactive_time_us", "time", "inactive", rows,
           [](const ActivationStats& r) { return r.inactive_time_us; });
  t.column("recomputable", "yes", "recomputable", rows,
           [](const ActivationStats& r) { return r.recomputable; });
  t.column("recomp_time_us", "time", "recompute time", rows,
           [](const ActivationStats& r) { return r.recomp_time_us; });
  t.column("recomp_memory_bytes", "bytes", "recompute memory", rows,
           [](const ActivationStats& r) { return r.recomp_memory_bytes; });
  t.column("recompute_ratio", "ratio", "bytes per us", rows,
           [](const ActivationStats& r) { return r.recompute_ratio; });
  t.column("swap_time_us", "time", "swap time", rows,
           [](const ActivationStats& r) { return r.swap_time_us; });
  return t;
}

/// Data for the memory curve's cursor: the lifetime of each storage.
[[nodiscard]] inline PageData storages_data(const StepGraph& graph) {
  const std::vector<StorageLifetime> lives = storage_lifetimes(graph);
  const auto all = graph.storage_ids();
  const auto owner = [&](StorageId s) -> const Value& {
    return graph.value(graph.storage(s).owner);
  };
  const auto name = [&](StorageId s) {
    return owner(s).name.empty() ? "value " + std::to_string(owner(s).id) : owner(s).name;
  };
  const auto first = [&](StorageId s) {
    const NodeId n = lives[s.index].first;
    return n.valid() ? std::int64_t{n.index} : 0;
  };
  const auto last = [&](StorageId s) {
    const NodeId n = lives[s.index].last;
    return n.valid() ? std::int64_t{n.index} : static_cast<std::int64_t>(graph.node_count());
  };
  return {{"name", page_list(all, name)},
          {"bytes", page_list(all, [&](StorageId s) { return owner(s).bytes.count; })},
          {"role",
           page_list(all, [&](StorageId s) { return static_cast<std::int64_t>(owner(s).role); })},
          {"first", page_list(all, first)},
          {"last", page_list(all, last)}};
}

class HtmlReport {
 public:
  HtmlReport(const Profile& profile, const std::vector<ActivationMetrics>& metrics,
             HtmlReportOptions options)
      : profile_(profile),
        graph_(profile.graph),
        options_(std::move(options)),
        plots_(profile, metrics),
        nodes_(nodes_table(node_stats(profile), !profile.run_times.empty())),
        activations_(activations_table(activation_stats(profile.graph, metrics))),
        activation_count_(metrics.size()) {
    if (options_.title.empty()) options_.title = graph_.name().empty() ? "Step" : graph_.name();
  }

  [[nodiscard]] std::string page() const {
    std::string out =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width,initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'; script-src "
        "'unsafe-inline'\">\n<title>" +
        markup_text(options_.title) + " — memory and time of a training step</title>\n<style>" +
        std::string(report_style) + "</style></head>\n<body>\n";
    out += "<a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header><h1>" +
           markup_text(options_.title) + "</h1>\n";
    if (!options_.note.empty()) out += "<p class=\"note\">" + markup_text(options_.note) + "</p>\n";
    out += facts() +
           "</header>\n<nav aria-label=\"Sections\"><ul><li><a "
           "href=\"#curve\">Memory</a></li><li><a href=\"#runtime\">Runtime</a></li>"
           "<li><a href=\"#activation-plots\">Activations</a></li><li><a href=\"#node-table\">Node "
           "table</a></li>"
           "<li><a href=\"#activation-table\">Activation table</a></li></ul></nav>\n<main "
           "id=\"main\">\n";
    out += memory_section() +
           section("runtime", "Runtime", plot(plots_.node_runtime(), "Runtime of every node"));
    out += section("activation-plots", "Activations",
                   plot(plots_.activation_size(), "Size of every activation") +
                       plot(plots_.inactive_time(), "Inactive time of every activation"));
    out += section("node-table", "Node table", nodes_.html()) +
           section("activation-table", "Activation table", activations_.html());
    out +=
        "</main>\n<footer>Written by Reprise. Bytes and times are those of node_stats.csv and "
        "activation_stats.csv.</footer>\n";
    out += "<script type=\"application/json\" id=\"data\">" + script_text(data()) +
           "</script>\n<script>" + std::string(report_script) + "</script>\n";
    return out + "</body></html>\n";
  }

 private:
  // Focusable: on a narrow page, a plot scrolls sideways, also with the keyboard.
  static std::string plot(const std::string& svg, const std::string& name) {
    return "<div class=\"plot\" tabindex=\"0\" role=\"group\" aria-label=\"" + name + "\">" + svg +
           "</div>\n";
  }
  static std::string section(const std::string& id, const std::string& heading,
                             const std::string& content) {
    return "<section aria-labelledby=\"" + id + "\"><h2 id=\"" + id + "\">" + heading + "</h2>\n" +
           content + "</section>\n";
  }
  static std::string fact(const std::string& name, const std::string& value,
                          const std::string& more = "") {
    return "<div><dt>" + name + "</dt><dd>" + markup_text(value) +
           (more.empty() ? "" : "<small>" + markup_text(more) + "</small>") + "</dd></div>";
  }

  [[nodiscard]] std::string facts() const {
    const MemoryAnalysis& m = plots_.memory();
    std::string out =
        fact("Peak", format_bytes(m.peak),
             m.peak_node.valid() ? "at " + shortened(graph_.node(m.peak_node).name, 40) : "");
    if (!profile_.run_times.empty()) {
      out += fact("Measured peak", format_bytes(profile_.peak),
                  format_bytes(profile_.base) + " before the step");
      out += fact("Measured step", format_time(aggregate(profile_.run_times, profile_.aggregate)),
                  counted(profile_.run_times.size(), "run"));
    }
    if (options_.budget) out += fact("Budget", format_bytes(*options_.budget));
    out += fact("Floor", format_bytes(m.floor), "no schedule needs less");
    out += fact("Always there", format_bytes(graph_.persistent_bytes()),
                "parameters, buffers, inputs");
    out += fact("Time", format_time(m.time), "sum over nodes") +
           fact("Nodes", std::to_string(graph_.node_count()));
    return "<dl class=\"facts\">" + out + fact("Activations", std::to_string(activation_count_)) +
           "</dl>\n";
  }

  [[nodiscard]] std::string memory_section() const {
    return section("curve", "Memory",
                   "<p class=\"note\" id=\"curve-help\">Move over the curve, or focus it and use "
                   "the arrow keys, to see what is alive.</p>\n"
                   "<div class=\"plot\" id=\"memory\" tabindex=\"0\" role=\"group\" "
                   "aria-label=\"Memory over the step\" "
                   "aria-describedby=\"curve-help\">" +
                       plots_.live_memory(options_.budget) +
                       "</div>\n<div id=\"alive\" role=\"status\" aria-live=\"polite\"></div>\n" +
                       plot(plots_.peak_breakdown(), "What stands at the peak") +
                       plot(plots_.node_memory(), "Memory while each node runs"));
  }

  [[nodiscard]] PageData data() const {
    constexpr std::array<std::size_t, role_count> roles = {0, 1, 2, 3, 4, 5, 6, 7};
    const NodeId peak = plots_.memory().peak_node;
    return {
        {"nodes", nodes_.data()},
        {"activations", activations_.data()},
        {"storages", storages_data(graph_)},
        {"roles", page_list(roles, [](std::size_t r) { return to_string(static_cast<Role>(r)); })},
        {"colors", page_list(roles, [](std::size_t r) { return color_of(static_cast<Role>(r)); })},
        {"plot", {Chart::left, Chart::plot_width, Chart::top, Chart::plot_height}},
        {"peak_rank", peak.valid() ? peak.index : 0}};
  }

  const Profile& profile_;
  const StepGraph& graph_;
  HtmlReportOptions options_;
  ProfilePlots plots_;
  HtmlTable nodes_, activations_;
  std::size_t activation_count_;
};

/// Throws Errc::bad_schedule if the graph's own order cannot be run, Errc::io if the stream fails.
inline void write_html_report(std::ostream& out, const Profile& profile,
                              const std::vector<ActivationMetrics>& metrics,
                              const HtmlReportOptions& options = {}) {
  if (!(out << HtmlReport{profile, metrics, options}.page() << std::flush))
    throw Error(Errc::io, "the report could not be written: the stream has failed");
}

}  // namespace reprise::reporting

namespace reprise {
using reporting::HtmlReportOptions;
using reporting::write_html_report;
}  // namespace reprise
