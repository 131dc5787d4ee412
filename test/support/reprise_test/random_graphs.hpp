#pragma once
// Graphs to try things on, made from a seed.
//
//   random_graph(rng, {.nodes = 10})            every feature of the format: views, in-place writes (also among the outputs of one
//                                               node), updates, initial and persistent values, sinks, repeated inputs, sparse ids
//   layered_graph(rng, {.nodes = 250})          random layered graphs with skewed sizes, wide fan-in and long skip edges
//   training_chain(rng, ...)                    forward and backward of a chain of blocks

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <reprise/graph/builder.hpp>

namespace reprise::testing {

/// Small, fast and the same everywhere (std distributions differ between libraries): splitmix64.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// A number in 0 .. n - 1.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>((*this)() % n); }
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  bool chance(double p) { return uniform() < p; }

 private:
  std::uint64_t state_;
};

struct RandomGraphOptions {
  std::size_t nodes = 10;
  double views = 0.2;       ///< share of outputs that are views
  double overwrites = 0.2;  ///< share of outputs that are written in place
  double updates = 0.15;    ///< share of nodes that update a persistent value
  double unrecomputable = 0.1;
  std::size_t most_bytes = 16;
  bool sparse_ids = true;
};

namespace detail {

struct AliveValue {
  ValueId id{};
  std::size_t storage = 0;
  bool persistent = false;
};

class RandomGraphMaker {
 public:
  RandomGraphMaker(Rng& rng, const RandomGraphOptions& options) : rng_(rng), options_(options) {}

  StepGraph make() {
    for (std::size_t i = 0, n = 1 + rng_.below(3); i < n; ++i) there_at_start(true);
    for (std::size_t i = 0, n = rng_.below(3); i < n; ++i) there_at_start(false);
    if (rng_.chance(0.2)) {
      const AliveValue base = alive_[0];
      const ValueId v = builder_.add_value({.id = next_id(), .role = Role::parameter, .persistent = true, .alias_of = base.id});
      alive_.push_back({v, base.storage, true});
    }
    for (std::size_t i = 0; i < options_.nodes; ++i) node();
    const std::size_t n = 1 + rng_.below(3);
    for (std::size_t i = 0; i < n && !alive_.empty(); ++i) builder_.add_output(recent().id);
    return std::move(builder_).build();
  }

 private:
  std::int64_t next_id() { return id_ += options_.sparse_ids ? 1 + static_cast<std::int64_t>(rng_.below(5)) : 1; }
  Bytes size() { return {static_cast<std::int64_t>(rng_.chance(0.1) ? 0 : 1 + rng_.below(options_.most_bytes))}; }

  void there_at_start(bool persistent) {
    const ValueId v = builder_.add_value({.id = next_id(), .bytes = size(), .role = Role::input, .persistent = persistent, .initial = !persistent});
    alive_.push_back({v, storages_++, persistent});
    if (persistent) persistent_.push_back(v);
  }

  // Mostly what was made last, sometimes anything: long skips are rare but there.
  const AliveValue& recent() {
    const std::size_t n = alive_.size();
    return alive_[rng_.chance(0.3) ? rng_.below(n) : n - 1 - rng_.below(std::min<std::size_t>(n, 4))];
  }

  void node() {
    std::vector<ValueId> inputs, outputs, updates;
    if (alive_.empty()) there_at_start(true);
    for (std::size_t i = 0, n = rng_.below(4); i < n; ++i) inputs.push_back(recent().id);
    bool recomputable = !rng_.chance(options_.unrecomputable);
    std::vector<AliveValue> made;
    std::vector<std::size_t> killed;
    for (std::size_t i = 0, n = rng_.chance(0.1) ? 0 : 1 + rng_.below(3); i < n; ++i) output(made, killed);
    for (const AliveValue& v : made) outputs.push_back(v.id);
    if (rng_.chance(0.06)) {
      const ValueId p = persistent_[rng_.below(persistent_.size())];
      outputs.push_back(p);
      recomputable = false;
    }
    if (rng_.chance(options_.updates)) {
      const ValueId p = persistent_[rng_.below(persistent_.size())];
      if (std::find(inputs.begin(), inputs.end(), p) == inputs.end()) updates.push_back(p);
    }
    const double time = rng_.chance(0.15) ? 0 : static_cast<double>(1 + rng_.below(20)) * (rng_.chance(0.2) ? 0.5 : 1);
    builder_.add_node({.id = static_cast<std::int64_t>(next_id()), .time = {time}, .workspace = rng_.chance(0.3) ? size() : Bytes{0},
                       .recomputable = recomputable},
                      inputs, outputs, updates);
    std::erase_if(alive_, [&](const AliveValue& v) { return std::find(killed.begin(), killed.end(), v.storage) != killed.end(); });
    for (const AliveValue& v : made)
      if (std::find(gone_.begin(), gone_.end(), v.id) == gone_.end()) alive_.push_back(v);
    gone_.clear();
  }

  void output(std::vector<AliveValue>& made, std::vector<std::size_t>& killed) {
    const double kind = rng_.uniform();
    const bool here = !made.empty() && rng_.chance(0.3);
    const AliveValue target = here ? made[rng_.below(made.size())] : recent();
    if (kind < options_.views) {
      made.push_back({builder_.add_value({.id = next_id(), .role = Role::activation, .alias_of = target.id}), target.storage, false});
    } else if (kind < options_.views + options_.overwrites && (!target.persistent || rng_.chance(0.1))) {
      made.push_back({builder_.add_value({.id = next_id(), .role = Role::activation, .overwrites = target.id}), target.storage, false});
      if (here) gone_.push_back(target.id);
      else killed.push_back(target.storage);
    } else {
      made.push_back({builder_.add_value({.id = next_id(), .bytes = size(), .role = Role::activation}), storages_++, false});
    }
  }

  Rng& rng_;
  const RandomGraphOptions& options_;
  GraphBuilder builder_{"random"};
  std::vector<AliveValue> alive_;
  std::vector<ValueId> persistent_, gone_;
  std::size_t storages_ = 0;
  std::int64_t id_ = -3;
};

}  // namespace detail

/// Almost always runnable in its own order; where it is not, check_runnable says so.
[[nodiscard]] inline StepGraph random_graph(Rng& rng, const RandomGraphOptions& options = {}) {
  return detail::RandomGraphMaker{rng, options}.make();
}

}  // namespace reprise::testing
