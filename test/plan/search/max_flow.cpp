#include <reprise/plan/search/max_flow.hpp>

#include <algorithm>
#include <random>

#include <boost/concept/assert.hpp>
#include <boost/graph/graph_concepts.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::planning;

namespace {

struct Join {
  std::size_t from, to;
  std::int64_t width;
};

struct Cut {
  std::int64_t flow = 0;
  std::vector<bool> reached{};
  bool operator==(const Cut&) const = default;
};

Cut cut(std::size_t vertices, const std::vector<Join>& joins, std::size_t source,
        std::size_t sink) {
  FlowNetwork net{vertices};
  for (const Join& j : joins) net.join(j.from, j.to, j.width);
  Cut result;
  result.flow = *net.send(source, sink);
  result.reached = net.reached_from(source);
  return result;
}

// How much can be sent, by the oldest way: a path that still lets something through, again and
// again.
std::int64_t flow_by_paths(std::size_t vertices, const std::vector<Join>& joins, std::size_t source,
                           std::size_t sink) {
  std::vector<std::int64_t> left;  // of joins, and of their ways back
  for (const Join& j : joins) left.insert(left.end(), {j.width, 0});
  const auto from = [&](std::size_t e) { return e % 2 == 0 ? joins[e / 2].from : joins[e / 2].to; };
  const auto to = [&](std::size_t e) { return from(e ^ 1); };
  for (std::int64_t sent = 0;;) {
    constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::vector<std::size_t> came_by(vertices, none), open{source};
    while (!open.empty() && came_by[sink] == none) {
      const std::size_t v = open.back();
      open.pop_back();
      for (std::size_t e = 0; e < left.size(); ++e) {
        if (from(e) != v || left[e] == 0 || to(e) == source || came_by[to(e)] != none) continue;
        came_by[to(e)] = e;
        open.push_back(to(e));
      }
    }
    if (came_by[sink] == none) return sent;
    std::int64_t width = left[came_by[sink]];
    for (std::size_t v = sink; v != source; v = from(came_by[v]))
      width = std::min(width, left[came_by[v]]);
    for (std::size_t v = sink; v != source; v = from(came_by[v])) {
      left[came_by[v]] -= width;
      left[came_by[v] ^ 1] += width;
    }
    sent += width;
  }
}

}  // namespace

TEST_CASE("a network is a graph of Boost.Graph's") {
  BOOST_CONCEPT_ASSERT((boost::VertexListGraphConcept<FlowNetwork>));
  BOOST_CONCEPT_ASSERT((boost::EdgeListGraphConcept<FlowNetwork>));
  BOOST_CONCEPT_ASSERT((boost::IncidenceGraphConcept<FlowNetwork>));
  FlowNetwork net{3};
  net.join(0, 2, 5);
  net.join(0, 1, 7);
  CHECK(num_vertices(net) == 3);
  CHECK(num_edges(net) == 4);  // two of them ways back
  CHECK(out_degree(0, net) == 2);
  CHECK(out_degree(1, net) == 1);
  const auto [edge, end] = out_edges(0, net);
  CHECK(source(*edge, net) == 0);
  CHECK(target(*edge, net) == 1);
}

TEST_CASE("the flow is what the narrowest cut lets through") {
  // The example of the header.
  CHECK(cut(4, {{0, 1, 3}, {1, 3, 2}, {0, 2, 1}, {2, 3, 5}, {1, 2, 9}}, 0, 3) ==
        Cut{4, {true, false, false, false}});
  // A path that must be taken back: through the middle first would leave 1 unsent.
  CHECK(cut(4, {{0, 1, 1}, {0, 2, 1}, {1, 2, 1}, {1, 3, 1}, {2, 3, 1}}, 0, 3).flow == 2);
  CHECK(cut(6, {{0, 1, 1}, {1, 2, 1}, {2, 5, 1}, {0, 3, 1}, {3, 2, 1}, {1, 4, 1}, {4, 5, 1}}, 0, 5)
            .flow == 2);
}

TEST_CASE("nothing flows where no path leads, and all of the source's side is reached") {
  CHECK(cut(4, {{0, 1, 7}, {2, 3, 7}}, 0, 3) == Cut{0, {true, true, false, false}});
  CHECK(cut(2, {}, 0, 1) == Cut{0, {true, false}});
  CHECK(cut(2, {{1, 0, 5}}, 0, 1) == Cut{0, {true, false}});  // against the direction
}

TEST_CASE("edges side by side add up, and one of no width is none") {
  CHECK(cut(2, {{0, 1, 2}, {0, 1, 3}, {0, 1, 0}}, 0, 1) == Cut{5, {true, false}});
  CHECK(cut(3, {{0, 1, 0}, {1, 2, 4}}, 0, 2) == Cut{0, {true, false, false}});
}

TEST_CASE("a chain of a hundred thousand edges is cut at its narrowest, the first of them") {
  std::vector<Join> joins;
  for (std::size_t v = 0; v < 100'000; ++v)
    joins.push_back({v, v + 1, v == 70'000 || v == 40'000 ? 3 : 5});
  const Cut found = cut(100'001, joins, 0, 100'000);
  CHECK(found.flow == 3);
  CHECK(std::count(found.reached.begin(), found.reached.end(), true) == 40'001);
}

TEST_CASE(
    "the flow is what path after path can send, and what leaves the reached side is as wide") {
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
  CAPTURE(seed);
  std::mt19937 random{seed};
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>{0, n - 1}(random);
  };
  for (int round = 0; round < 500; ++round) {
    const std::size_t vertices = 2 + below(24);
    std::vector<Join> joins;
    for (std::size_t i = below(4 * vertices); i > 0; --i)
      joins.push_back(
          {below(vertices), below(vertices),
           below(8) == 0 ? std::int64_t{1} << 50 : static_cast<std::int64_t>(below(6))});
    std::erase_if(joins, [&](const Join& j) {
      return j.from == j.to || (j.from == 0 && j.to == vertices - 1);
    });
    CAPTURE(round);
    const Cut found = cut(vertices, joins, 0, vertices - 1);
    std::int64_t width = 0;
    for (const Join& j : joins)
      width += found.reached[j.from] && !found.reached[j.to] ? j.width : 0;
    CHECK(found.flow == flow_by_paths(vertices, joins, 0, vertices - 1));
    CHECK(width == found.flow);
    CHECK_FALSE(found.reached[vertices - 1]);
  }
}
