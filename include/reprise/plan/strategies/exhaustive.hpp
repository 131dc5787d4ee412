#pragma once
// Exhaustive finds the optimal schedule of a small graph: the shortest path over all states of a
// step. Tests compare other strategies with it.
//
// A state says which nodes have run and which values exist, grouped by their storage. Running a
// node leads to the next state, and costs the node's time if it has run before. If the budget is
// exceeded, just enough storages are evicted first (keeping more is never worse). First runs cost
// the same on every path, so the search orders states by extra time, and the first goal state is
// the optimum.
//
// The number of states is exponential, so Exhaustive suits small graphs only. A limit on states
// ends the search without a result.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include <reprise/plan/concepts.hpp>
#include <reprise/plan/search/live_schedule.hpp>

namespace reprise::planning {

class Exhaustive {
 public:
  explicit Exhaustive(std::size_t most_states = 500'000) : most_states_(most_states) {}

  [[nodiscard]] std::string_view name() const { return "exhaustive"; }
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    return search(graph, request).schedule;
  }

  enum class Verdict { optimal, infeasible, gave_up };
  struct Result {
    Verdict verdict = Verdict::gave_up;
    Schedule schedule{};  ///< the graph's own order if none was found
  };
  [[nodiscard]] Result search(const StepGraph& graph, const PlanRequest& request) const;

 private:
  std::size_t most_states_;
};

class StateSearch {
 public:
  StateSearch(const StepGraph& graph, const PlanRequest& request, std::size_t most_states)
      : graph_(graph), facts_(graph), request_(request), most_states_(most_states), stop_(request) {
    keep_.assign(graph.node_count(), false);
    for (NodeId n : request.keep) keep_[n.index] = true;
  }

  Exhaustive::Result run() {
    if (graph_.node_count() > 64 || graph_.value_count() > 200)
      return {Exhaustive::Verdict::gave_up, own_order(graph_)};
    add(start_state(), 0, 0, {});
    while (!open_.empty()) {
      const Open top = open_.top();
      open_.pop();
      if (top.extra > states_[top.state].extra) continue;
      if (is_goal(top.state)) return {Exhaustive::Verdict::optimal, path(top.state)};
      if (states_.size() > most_states_ || stop_())
        return {Exhaustive::Verdict::gave_up, own_order(graph_)};
      Key key = states_[top.state].key->substr(0, graph_.value_count());
      useful_ = forget_useless(key, states_[top.state].ran);
      for (std::uint32_t n = 0; n < graph_.node_count(); ++n) try_node(top.state, n);
    }
    return {Exhaustive::Verdict::infeasible, own_order(graph_)};
  }

 private:
  // One character for each value: 0 if it does not exist, else a name of its storage. Eight more:
  // the nodes that have run.
  using Key = std::string;
  struct State {
    const Key* key = nullptr;
    std::uint64_t ran = 0;
    std::int64_t extra = 0;
    std::uint32_t parent = 0;
    NodeId node{};
  };
  struct Open {
    std::int64_t extra;
    int left;  // nodes that have not run: deeper states first among equals
    std::uint32_t state;
    bool operator<(const Open& other) const {
      return extra != other.extra ? extra > other.extra : left > other.left;
    }
  };

  Key start_state() {
    Key key(graph_.value_count(), '\0');
    std::vector<char> name(graph_.storage_count(), 0);
    char next = 1;
    for (std::size_t v = 0; v < graph_.value_count(); ++v) {
      const Value& value = graph_.values()[v];
      if (!value.persistent && !value.initial) continue;
      char& c = name[value.storage.index];
      if (c == 0) c = next++;
      key[v] = c;
    }
    return key;
  }

  // Storages are renamed by the first value in them, so that equal states have equal keys.
  static void normalise(Key& key, std::size_t values) {
    char names[256] = {};
    char next = 1;
    for (std::size_t v = 0; v < values; ++v) {
      if (key[v] == 0) continue;
      char& c = names[static_cast<unsigned char>(key[v])];
      if (c == 0) c = next++;
      key[v] = c;
    }
  }

  // Finds the nodes that may run (for the first time or not) on the way to the goal, from the last
  // to the first. Values that none of them reads are removed.
  std::uint64_t forget_useless(Key& key, std::uint64_t ran) {
    needed_.assign(graph_.value_count(), false);
    for (ValueId v : graph_.outputs()) needed_[v.index] = true;
    std::uint64_t useful = 0;
    for (std::size_t i = graph_.node_count(); i > 0; --i) {
      const auto n = static_cast<std::uint32_t>(i - 1);
      bool serves = (ran >> n & 1) == 0;
      if (!serves && graph_.nodes()[n].recomputable && !keep_[n])
        for (const auto& o : facts_.outputs(n))
          serves = serves || needed_[o.value] || (o.target_here && needed_[o.target]);
      if (!serves) continue;
      useful |= std::uint64_t{1} << n;
      for (std::uint32_t v : facts_.reads(n)) needed_[v] = true;
    }
    for (std::size_t v = 0; v < graph_.value_count(); ++v)
      if (!needed_[v] && !graph_.values()[v].persistent) key[v] = 0;
    return useful;
  }

  // Recomputing a node is useful only if one of its results does not exist, or may be overwritten
  // before its readers run.
  [[nodiscard]] bool brings_back(const Key& key, std::uint32_t n) const {
    for (const auto& o : facts_.outputs(n))
      if (o.published &&
          (key[o.value] == 0 || facts_.is_overwritten(graph_.values()[o.value].storage.index)))
        return true;
    return false;
  }

  void add(Key key, std::uint64_t ran, std::int64_t extra, State from) {
    forget_useless(key, ran);
    normalise(key, graph_.value_count());
    for (int shift = 0; shift < 64; shift += 8)
      key.push_back(static_cast<char>(ran >> shift & 255));
    const auto [it, fresh] =
        index_.emplace(std::move(key), static_cast<std::uint32_t>(states_.size()));
    if (fresh) states_.push_back({&it->first, ran, extra, from.parent, from.node});
    else if (states_[it->second].extra <= extra) return;
    else states_[it->second] = {&it->first, ran, extra, from.parent, from.node};
    open_.push({extra, static_cast<int>(graph_.node_count()) - std::popcount(ran), it->second});
  }

  [[nodiscard]] bool is_goal(std::uint32_t s) const {
    if (std::popcount(states_[s].ran) != static_cast<int>(graph_.node_count())) return false;
    const Key& key = *states_[s].key;
    return std::all_of(graph_.outputs().begin(), graph_.outputs().end(),
                       [&](ValueId v) { return key[v.index] != 0; });
  }

  [[nodiscard]] Schedule path(std::uint32_t s) const {
    Schedule result;
    for (; states_[s].node.valid(); s = states_[s].parent) result.push_back(states_[s].node);
    std::reverse(result.begin(), result.end());
    return result;
  }

  [[nodiscard]] bool allowed(std::uint64_t ran, std::uint32_t n) const {
    const bool first = (ran >> n & 1) == 0;
    if (!first && (!graph_.nodes()[n].recomputable || keep_[n])) return false;
    if (first && request_.keep_order && static_cast<std::uint32_t>(std::countr_one(ran)) != n)
      return false;
    for (const auto& b : facts_.read_bounds(n))
      if (updates_done(ran, b.update) != b.before) return false;
    if (!first) return true;
    for (std::uint32_t u : facts_.updates_by(n)) {
      const auto& updaters = facts_.all_updates()[u].updaters;
      const auto before = static_cast<std::uint32_t>(
          std::find(updaters.begin(), updaters.end(), n) - updaters.begin());
      if (updates_done(ran, u) != before) return false;
    }
    return true;
  }

  [[nodiscard]] std::uint32_t updates_done(std::uint64_t ran, std::uint32_t u) const {
    std::uint32_t done = 0;
    for (std::uint32_t n : facts_.all_updates()[u].updaters)
      done += static_cast<std::uint32_t>(ran >> n & 1);
    return done;
  }

  [[nodiscard]] std::int64_t bytes_of(std::size_t v) const {
    const Storage& s = graph_.storage(graph_.values()[v].storage);
    return s.persistent ? 0 : s.bytes.count;
  }

  void try_node(std::uint32_t s, std::uint32_t n) {
    const State state = states_[s];
    if (!allowed(state.ran, n)) return;
    const Key key = state.key->substr(0, graph_.value_count());
    if ((state.ran >> n & 1) != 0 && ((useful_ >> n & 1) == 0 || !brings_back(key, n))) return;
    bool used[256] = {}, there[256] = {};
    for (std::uint32_t v : facts_.reads(n)) {
      if (key[v] == 0) return;
      used[static_cast<unsigned char>(key[v])] = true;
    }
    std::int64_t need =
        graph_.nodes()[n].workspace.count + graph_.persistent_bytes().count - request_.budget.count;
    for (const auto& o : facts_.outputs(n))
      if (o.target == ScheduleFacts::none) need += graph_.values()[o.value].bytes.count;
    if (state.ran == 0) need += facts_.unused_initial_bytes();
    std::vector<std::pair<char, std::int64_t>> droppable;
    for (std::size_t v = 0; v < key.size(); ++v) {
      const auto c = static_cast<unsigned char>(key[v]);
      if (c == 0 || there[c] || bytes_of(v) == 0) continue;
      there[c] = true;
      if (skip_unused_initial(v)) continue;
      need += bytes_of(v);
      if (!used[c] && state.ran != 0) droppable.push_back({key[v], bytes_of(v)});
    }
    const std::int64_t extra = state.extra + ((state.ran >> n & 1) != 0 ? facts_.ticks(n) : 0);
    dropped_.clear();
    drop_and_run(key, s, n, extra, need, droppable, 0);
  }

  // Counted separately, at the first occurrence only.
  [[nodiscard]] bool skip_unused_initial(std::size_t v) const {
    return graph_.values()[v].initial && graph_.readers(ValueId{v}).empty() &&
           std::find(graph_.outputs().begin(), graph_.outputs().end(), ValueId{v}) ==
               graph_.outputs().end();
  }

  // Every set of evictions that is just large enough.
  void drop_and_run(const Key& key, std::uint32_t s, std::uint32_t n, std::int64_t extra,
                    std::int64_t need, const std::vector<std::pair<char, std::int64_t>>& droppable,
                    std::size_t from) {
    if (need <= 0) {
      if (std::all_of(dropped_.begin(), dropped_.end(),
                      [&](const auto& d) { return need + d.second > 0; }))
        run_node(key, s, n, extra);
      return;
    }
    for (std::size_t i = from; i < droppable.size(); ++i) {
      dropped_.push_back(droppable[i]);
      drop_and_run(key, s, n, extra, need - droppable[i].second, droppable, i + 1);
      dropped_.pop_back();
    }
  }

  void run_node(Key key, std::uint32_t s, std::uint32_t n, std::int64_t extra) {
    for (const auto& d : dropped_) std::replace(key.begin(), key.end(), d.first, '\0');
    bool taken[256] = {};
    std::vector<std::pair<std::uint32_t, char>> made;
    std::vector<std::pair<std::uint32_t, char>> rewritten;
    for (ValueId v : graph_.outputs(NodeId{n}))
      if (graph_.value(v).persistent && key[v.index] != 0)
        rewritten.push_back({v.index, key[v.index]});
    unsigned char fresh = 255;
    for (const auto& o : facts_.outputs(n)) {
      char c = static_cast<char>(fresh);
      if (o.target == ScheduleFacts::none) --fresh;
      else if (o.target_here)
        c = std::find_if(made.begin(), made.end(), [&](const auto& m) {
              return m.first == o.target;
            })->second;
      else c = key[o.target];
      made.push_back({o.value, c});
      if (o.overwrites) taken[static_cast<unsigned char>(c)] = true;
    }
    for (char& c : key)
      if (c != 0 && taken[static_cast<unsigned char>(c)]) c = 0;
    std::size_t k = 0;
    for (const auto& o : facts_.outputs(n)) {
      if (o.published) key[o.value] = made[k].second;
      ++k;
    }
    for (const auto& [v, c] : rewritten)
      if (!overwritten_by(n, v)) key[v] = c;
    add(std::move(key), states_[s].ran | std::uint64_t{1} << n, extra,
        {nullptr, 0, 0, s, NodeId{n}});
  }

  [[nodiscard]] bool overwritten_by(std::uint32_t n, std::uint32_t v) const {
    const auto outputs = graph_.outputs(NodeId{n});
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](ValueId w) { return graph_.value(w).overwrites == ValueId{v}; });
  }

  const StepGraph& graph_;
  ScheduleFacts facts_;
  const PlanRequest& request_;
  std::size_t most_states_;
  StopSignal stop_;
  std::vector<bool> keep_, needed_;
  std::uint64_t useful_ = 0;
  std::unordered_map<Key, std::uint32_t> index_;
  std::vector<State> states_;
  std::priority_queue<Open> open_;
  std::vector<std::pair<char, std::int64_t>> dropped_;
};

inline Exhaustive::Result Exhaustive::search(const StepGraph& graph,
                                             const PlanRequest& request) const {
  return StateSearch{graph, request, most_states_}.run();
}

/// The smallest feasible budget; empty if the search reached its limit.
[[nodiscard]] inline std::optional<Bytes> least_feasible_peak(const StepGraph& graph,
                                                              PlanRequest request, Bytes low,
                                                              Bytes high,
                                                              std::size_t most_states = 2'000'000) {
  const Exhaustive search{most_states};
  while (low < high) {
    request.budget = {low.count + (high.count - low.count) / 2};
    const auto verdict = search.search(graph, request).verdict;
    if (verdict == Exhaustive::Verdict::gave_up) return std::nullopt;
    if (verdict == Exhaustive::Verdict::optimal) high = request.budget;
    else low = request.budget + Bytes{1};
  }
  return high;
}

static_assert(Strategy<Exhaustive>);

}  // namespace reprise::planning

namespace reprise {
using planning::Exhaustive;
}  // namespace reprise
