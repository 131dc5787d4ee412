#include <reprise/report/html.hpp>

#include <sstream>

#include <nlohmann/json.hpp>

#include <reprise/graph/alive_during.hpp>
#include <reprise/graph/builder.hpp>
#include <reprise_test/browser.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/toy_graph.hpp>
#include <reprise_test/working_time.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::reporting;
using namespace reprise::literals;
using nlohmann::json;
using reprise_test::refusal;
using reprise_test::toy_graph;

namespace {

std::string page_of(const Profile& profile, const HtmlReportOptions& options = {}) {
  std::ostringstream out;
  write_html_report(out, profile, activation_metrics(profile), options);
  return out.str();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const auto at = text.find(begin);
  if (at == text.npos) return "";
  const auto from = at + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

json data_of(const std::string& page) {
  return json::parse(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
}

json column(const json& table, const std::string& key) {
  for (const json& c : table["columns"])
    if (c["key"] == key) return c["values"];
  return nullptr;
}

// The page with a script that uses it as a reader would and writes down what it sees; run, and what
// it saw.
json used(const std::string& browser, std::string page, const std::string& script) {
  const auto insert = [&](const std::string& at, const std::string& text) {
    page.insert(page.find(at), text);
  };
  insert(
      "</head>",
      "<script>window.faults=[];window.addEventListener('error',e=>faults.push(String(e.message)));"
      "const said=console.error;console.error=(...a)=>{faults.push(a.join(' '));said(...a)};"
      "document.addEventListener('securitypolicyviolation',e=>faults.push('policy: "
      "'+e.violatedDirective))</script>");
  insert("</body>", "<pre id=\"seen\"></pre><script>{const seen={};try{" + script +
                        "}catch(e){faults.push(String(e))}seen.faults=faults;"
                        "document.getElementById('seen').textContent=JSON.stringify(seen)."
                        "replaceAll('<','?')}</script>");
  const std::string text =
      between(reprise_test::run_page(browser, page), "<pre id=\"seen\">", "</pre>");
  INFO("the browser gave: " << text);
  REQUIRE_FALSE(text.empty());
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 5, "&amp;") == 0) i += 4, plain += '&';
    else if (text.compare(i, 4, "&gt;") == 0) i += 3, plain += '>';
    else plain += text[i];
  }
  return json::parse(plain);
}

}  // namespace

TEST_CASE("a report's data are the tables' numbers") {
  const Profile profile = unmeasured_profile(toy_graph());
  const json data = data_of(page_of(profile));
  CHECK(data["nodes"]["count"] == 6);
  CHECK(column(data["nodes"], "live_bytes") == json{12608, 12352, 12352, 28736, 28740, 16452});
  CHECK(column(data["nodes"], "time_us") == json{120.5, 10, 0, 30, 8, 20});
  CHECK(column(data["nodes"], "active_peak_bytes") == nullptr);  // nobody measured
  CHECK(column(data["activations"], "first_bw_node") == json{5, nullptr});
  CHECK(column(data["activations"], "recomp_memory_bytes") == json{8448, 16384});
  CHECK(data["storages"]["first"] == json{0, 0, 0, 3, 4, 5});
  CHECK(data["storages"]["last"] == json{6, 6, 5, 4, 6, 6});
  CHECK(data["peak_rank"] == 4);
}

TEST_CASE("a report says its title, its note, the budget and the main numbers") {
  const std::string page = page_of(unmeasured_profile(toy_graph()),
                                   {.title = "My <step>", .budget = 24000_B, .note = "a & b"});
  CHECK(has(page, "<h1>My &lt;step&gt;</h1>"));
  CHECK(has(page, "a &amp; b"));
  CHECK(has(page, "<dt>Budget</dt><dd>23.44 KiB</dd>"));
  CHECK(has(page, "<dt>Peak</dt><dd>28.07 KiB<small>at sum</small></dd>"));
  CHECK(has(page, "<dt>Floor</dt><dd>20.07 KiB"));
  CHECK_FALSE(has(page, "Measured"));
  CHECK(has(page_of(unmeasured_profile(toy_graph())), "<h1>toy</h1>"));
}

TEST_CASE("a measured profile's report says what was measured") {
  Profile profile = unmeasured_profile(toy_graph());
  profile.run_times = {{200}, {210}, {190}};
  profile.peak = 30000_B;
  const std::string page = page_of(profile);
  CHECK(has(page, "<dt>Measured peak</dt><dd>29.30 KiB"));
  CHECK(has(page, "<dt>Measured step</dt><dd>200.0 us<small>3 runs</small>"));
  CHECK(column(data_of(page)["nodes"], "active_peak_bytes") ==
        json{12608, 12352, 12352, 28736, 28740, 16452});
}

TEST_CASE("a report loads nothing and forbids loading") {
  const std::string page = page_of(unmeasured_profile(toy_graph()));
  CHECK(has(page, "default-src 'none'"));
  for (const char* loads : {" src=", "@import", "url(", "<link"}) CHECK_FALSE(has(page, loads));
}

TEST_CASE("names cannot break out of a report") {
  GraphBuilder b{"</title><script>alert(1)</script>"};
  const ValueId v =
      b.add_value({.id = 0, .name = "</script><b>\xff", .bytes = 8_B, .role = Role::activation});
  b.add_node({.id = 0, .name = "<!--<script>"}, {}, {v});
  const std::string page = page_of(unmeasured_profile(std::move(b).build()));
  CHECK_FALSE(has(page, "<script>alert"));
  CHECK_FALSE(has(page, "</script><b>"));
  CHECK_FALSE(has(page, "<!--"));
  CHECK(column(data_of(page)["activations"], "name") == json{"</script><b>?"});
}

TEST_CASE("an infinite ratio is a word, since JSON has no number for it") {
  GraphBuilder b;
  const ValueId v = b.add_value({.id = 0, .bytes = 8_B, .role = Role::activation});
  b.add_node({.id = 0}, {}, {v});
  CHECK(column(data_of(page_of(unmeasured_profile(std::move(b).build())))["activations"],
               "recompute_ratio") == json{"inf"});
}

TEST_CASE("a report of thousands of nodes is written in well under two seconds") {
  const Profile profile = unmeasured_profile(testing::transformer_step({.layers = 100}));
  const reprise_test::WorkingTime time;
  const std::string page = page_of(profile);
  CHECK(time.seconds() < 2);
  CHECK(page.size() < 2'000'000);
}

TEST_CASE("a report to a stream that fails is an error") {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  const Profile profile = unmeasured_profile(toy_graph());
  CHECK(refusal([&] { write_html_report(out, profile, activation_metrics(profile)); }) ==
        "input/output: the report could not be written: the stream has failed");
}

TEST_CASE(
    "in a browser, everything that can be used or seen has a name and can be reached by the "
    "keyboard") {
  const auto browser = reprise_test::find_browser();
  if (!browser) {
    WARN("no Chromium here: whether the report can be used without a mouse was not tested");
    return;
  }
  const json seen =
      used(*browser, page_of(unmeasured_profile(testing::resnet_step({.blocks = 4}))), R"js(
    const all = what => [...document.querySelectorAll(what)];
    const name = e => e.getAttribute('aria-label') || document.getElementById(e.getAttribute('aria-labelledby'))?.textContent ||
                      e.labels?.[0]?.textContent || e.querySelector('title')?.textContent || e.textContent;
    seen.pictures = all('main svg').length;
    const start_of = e => e.outerHTML.slice(0, 60);
    const usable = all('button, input, svg, [role=region], [role=group], section, nav');
    seen.nameless = usable.filter(e => !name(e).trim()).map(start_of);
    seen.not_pictures = all('main svg').filter(e => e.getAttribute('role') !== 'img').length;
    seen.out_of_reach = all('.plot, .scroll, button, input').filter(e => e.tabIndex < 0).map(start_of);
    seen.headings = all('h1, h2').map(h => h.textContent);
    seen.language = document.documentElement.lang;
    const button = document.querySelector('#activations th button');
    button.focus();
    seen.focused = document.activeElement === button;
    seen.live = document.getElementById('alive').getAttribute('aria-live');
  )js");
  CHECK(seen["faults"] == json::array());
  CHECK(seen["pictures"] == 6);
  CHECK(seen["nameless"] == json::array());
  CHECK(seen["not_pictures"] == 0);
  CHECK(seen["out_of_reach"] == json::array());
  CHECK(seen["headings"] == json{"resnet-like-4", "Memory", "Runtime", "Activations", "Node table",
                                 "Activation table"});
  CHECK(seen["language"] == "en");
  CHECK(seen["focused"] == true);
  CHECK(seen["live"] == "polite");
}

TEST_CASE("in a browser, tables sort and search and the curve names what is alive") {
  const auto browser = reprise_test::find_browser();
  if (!browser) {
    WARN("no Chromium here: how the report behaves was not tested");
    return;
  }
  const Profile profile = unmeasured_profile(testing::resnet_step({.blocks = 4}));
  const std::vector<NodeStats> rows = node_stats(profile);
  const json seen =
      used(*browser, page_of(profile, {.title = "resnet", .budget = 10_MiB, .note = ""}), R"js(
    const cells = (row, at) => document.querySelectorAll('#nodes tbody tr')[row].cells[at].title;
    const heads = [...document.querySelectorAll('#nodes th')], time = heads.findIndex(h => h.textContent === 'time');
    seen.rows = document.querySelectorAll('#nodes tbody tr').length;
    heads[time].querySelector('button').click();
    seen.slowest = Number(cells(0, time));
    seen.sort = heads[time].getAttribute('aria-sort');
    heads[time].querySelector('button').click();
    seen.fastest = Number(cells(0, time));
    seen.sort_again = heads[time].getAttribute('aria-sort');
    const search = document.getElementById('nodes-search');
    search.value = 'backward CONV';
    search.dispatchEvent(new Event('input'));
    seen.found = [...document.querySelectorAll('#nodes tbody tr')].map(r => r.cells[2].textContent);
    seen.said = document.getElementById('nodes-count').textContent;

    const plot = document.getElementById('memory'), alive = document.getElementById('alive');
    seen.at_start = Number(alive.querySelector('h3').dataset.rank);
    const box = plot.querySelector('svg').getBoundingClientRect();
    const x_of = rank => box.left + (92 + 1084 * (rank + 0.5) / seen.rows) * box.width / 1200;
    const hover = rank => plot.dispatchEvent(new MouseEvent('mousemove', {clientX: x_of(rank), clientY: box.top + 100}));
    const pointed = () => { const h = alive.querySelector('h3'); return {rank: Number(h.dataset.rank), bytes: Number(h.dataset.bytes)}; };
    hover(20);
    seen.hovered = pointed();
    seen.text = alive.textContent;
    plot.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
    seen.right = pointed();
    plot.dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}));
    seen.end = pointed().rank;
    plot.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
    seen.past_end = pointed().rank;
    seen.loaded = performance.getEntriesByType('resource').length;
    seen.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  )js");
  CHECK(seen["faults"] == json::array());
  CHECK(seen["loaded"] == 0);
  CHECK(seen["wide"] == false);
  CHECK(seen["rows"] == rows.size());

  double slowest = 0, fastest = rows[0].time_us;
  std::vector<std::string> found;
  for (const NodeStats& r : rows) {
    slowest = std::max(slowest, r.time_us);
    fastest = std::min(fastest, r.time_us);
    if (has(r.name + " " + r.op + " " + r.phase, "conv") &&
        has(r.name + " " + r.op + " " + r.phase, "backward"))
      found.push_back(r.name);
  }
  CHECK(seen["slowest"] == slowest);
  CHECK(seen["sort"] == "descending");
  CHECK(seen["fastest"] == fastest);
  CHECK(seen["sort_again"] == "ascending");
  std::vector<std::string> shown = seen["found"];
  std::sort(found.begin(), found.end());
  std::sort(shown.begin(), shown.end());
  CHECK(shown == found);
  CHECK(seen["said"] == std::to_string(found.size()) + " of " + std::to_string(rows.size()));

  CHECK(seen["at_start"] == analyse_memory(profile.graph).peak_node.index);
  CHECK(seen["hovered"]["rank"] == 20);
  CHECK(seen["hovered"]["bytes"] == rows[20].live_bytes);
  CHECK(has(seen["text"], rows[20].name));
  const auto alive = alive_during(profile.graph, storage_lifetimes(profile.graph), NodeId{20});
  const Value& largest = profile.graph.value(profile.graph.storage(alive.front()).owner);
  CHECK(has(seen["text"],
            largest.name.empty() ? "value " + std::to_string(largest.id) : largest.name));
  CHECK(seen["right"]["rank"] == 21);
  CHECK(seen["right"]["bytes"] == rows[21].live_bytes);
  CHECK(seen["end"] == rows.size() - 1);
  CHECK(seen["past_end"] == rows.size() - 1);
}
