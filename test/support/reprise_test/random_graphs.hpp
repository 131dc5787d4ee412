#pragma once
// Graphs to try things on, made from a seed.
//
//   random_graph(rng, {.nodes = 10})            every feature of the format: views, in-place writes (also among the outputs of one
//                                               node), updates, initial and persistent values, sinks, repeated inputs, sparse ids
//   layered_graph(rng, {.nodes = 250})          random layered graphs with skewed sizes, wide fan-in and long skip edges
//   resnet_step({.blocks = 16})                 forward and backward of a convolutional net: batch norm with updates, relu in place
//   transformer_step({.layers = 12})            forward and backward of an encoder: views, attention, dropout masks, layer norm
//   chain_step(n)                               the textbook case: f1 … fn, then bn … b1, bi reads what fi read and what fi made

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <reprise/graph/builder.hpp>

namespace reprise::testing {

using namespace graphs;

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
      const ValueId v = builder_.add_value(
          {.id = next_id(), .role = Role::parameter, .persistent = true, .alias_of = base.id});
      alive_.push_back({v, base.storage, true});
    }
    for (std::size_t i = 0; i < options_.nodes; ++i) node();
    const std::size_t n = 1 + rng_.below(3);
    for (std::size_t i = 0; i < n && !alive_.empty(); ++i) builder_.add_output(recent().id);
    return std::move(builder_).build();
  }

 private:
  std::int64_t next_id() {
    return id_ += options_.sparse_ids ? 1 + static_cast<std::int64_t>(rng_.below(5)) : 1;
  }
  Bytes size() {
    return {static_cast<std::int64_t>(rng_.chance(0.1) ? 0 : 1 + rng_.below(options_.most_bytes))};
  }

  void there_at_start(bool persistent) {
    const ValueId v = builder_.add_value({.id = next_id(),
                                          .bytes = size(),
                                          .role = Role::input,
                                          .persistent = persistent,
                                          .initial = !persistent});
    alive_.push_back({v, storages_++, persistent});
    if (persistent) persistent_.push_back(v);
  }

  // Mostly what was made last, sometimes anything: long skips are rare but there.
  const AliveValue& recent() {
    const std::size_t n = alive_.size();
    return alive_[rng_.chance(0.3) ? rng_.below(n)
                                   : n - 1 - rng_.below(std::min<std::size_t>(n, 4))];
  }

  void node() {
    std::vector<ValueId> inputs, outputs, updates;
    if (alive_.empty()) there_at_start(true);
    for (std::size_t i = 0, n = rng_.below(4); i < n; ++i) inputs.push_back(recent().id);
    bool recomputable = !rng_.chance(options_.unrecomputable);
    std::vector<AliveValue> made;
    std::vector<std::size_t> killed;
    for (std::size_t i = 0, n = rng_.chance(0.1) ? 0 : 1 + rng_.below(3); i < n; ++i)
      output(made, killed);
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
    const double time =
        rng_.chance(0.15) ? 0
                          : static_cast<double>(1 + rng_.below(20)) * (rng_.chance(0.2) ? 0.5 : 1);
    builder_.add_node({.id = static_cast<std::int64_t>(next_id()),
                       .time = {time},
                       .workspace = rng_.chance(0.3) ? size() : Bytes{0},
                       .recomputable = recomputable},
                      inputs, outputs, updates);
    std::erase_if(alive_, [&](const AliveValue& v) {
      return std::find(killed.begin(), killed.end(), v.storage) != killed.end();
    });
    for (const AliveValue& v : made)
      if (std::find(gone_.begin(), gone_.end(), v.id) == gone_.end()) alive_.push_back(v);
    gone_.clear();
  }

  void output(std::vector<AliveValue>& made, std::vector<std::size_t>& killed) {
    const double kind = rng_.uniform();
    const bool here = !made.empty() && rng_.chance(0.3);
    const AliveValue target = here ? made[rng_.below(made.size())] : recent();
    if (kind < options_.views) {
      made.push_back(
          {builder_.add_value({.id = next_id(), .role = Role::activation, .alias_of = target.id}),
           target.storage, false});
    } else if (kind < options_.views + options_.overwrites &&
               (!target.persistent || rng_.chance(0.1))) {
      made.push_back(
          {builder_.add_value({.id = next_id(), .role = Role::activation, .overwrites = target.id}),
           target.storage, false});
      if (here) gone_.push_back(target.id);
      else killed.push_back(target.storage);
    } else {
      made.push_back(
          {builder_.add_value({.id = next_id(), .bytes = size(), .role = Role::activation}),
           storages_++, false});
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

struct LayeredGraphOptions {
  std::size_t nodes = 250;
  std::size_t width = 0;   ///< nodes in a layer; 0 for about the square root
  std::size_t fan_in = 4;  ///< at most so many inputs
  double skip = 0.15;      ///< share of edges that come from any earlier layer
  double skew = 1.2;       ///< sigma of the log-normal sizes
};

namespace detail {
// Box-Muller: the same everywhere, unlike std::normal_distribution
inline double normal(Rng& rng) {
  const double u = rng.uniform() + 1e-300, v = rng.uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}
}  // namespace detail

/// Layers of nodes, each reading a few of the layer before and now and then one of long ago. What
/// nobody reads is an output.
[[nodiscard]] inline StepGraph layered_graph(Rng& rng, const LayeredGraphOptions& options = {}) {
  GraphBuilder b{"layered-" + std::to_string(options.nodes)};
  const ValueId source = b.add_value(
      {.id = 0, .name = "source", .bytes = Bytes{1000}, .role = Role::input, .persistent = true});
  const std::size_t width =
      options.width != 0
          ? options.width
          : std::max<std::size_t>(
                2, static_cast<std::size_t>(std::sqrt(static_cast<double>(options.nodes)) / 2));
  std::vector<std::vector<ValueId>> layers;
  std::vector<bool> read(options.nodes + 1, false);
  std::vector<ValueId> made;
  for (std::size_t i = 0; i < options.nodes; ++i) {
    if (layers.empty() || layers.back().size() >= width) layers.emplace_back();
    std::vector<ValueId> inputs;
    const std::size_t fan = 1 + rng.below(options.fan_in);
    for (std::size_t k = 0; k < fan && layers.size() > 1; ++k) {
      const std::size_t from =
          rng.chance(options.skip) ? rng.below(layers.size() - 1) : layers.size() - 2;
      const ValueId v = layers[from][rng.below(layers[from].size())];
      if (std::find(inputs.begin(), inputs.end(), v) == inputs.end()) inputs.push_back(v);
    }
    if (inputs.empty()) inputs.push_back(source);
    for (ValueId v : inputs) read[v.index] = true;
    const auto bytes =
        static_cast<std::int64_t>(1 + 1e6 * std::exp(options.skew * detail::normal(rng)));
    const double time = 1 + std::floor(100 * std::exp(detail::normal(rng)));
    const ValueId out = b.add_value(
        {.id = static_cast<std::int64_t>(i + 1), .bytes = Bytes{bytes}, .role = Role::activation});
    b.add_node({.id = static_cast<std::int64_t>(i),
                .name = "n" + std::to_string(i),
                .op = "op",
                .time = {time}},
               std::span{inputs}, std::span{&out, 1});
    layers.back().push_back(out);
    made.push_back(out);
  }
  for (ValueId v : made)
    if (!read[v.index]) b.add_output(v);
  return std::move(b).build();
}

/// f1 … fn, then bn … b1; all activations of one size. `times` and `sizes` may vary the steps.
[[nodiscard]] inline StepGraph chain_step(std::size_t n, std::span<const double> times = {},
                                          std::span<const std::int64_t> sizes = {}) {
  GraphBuilder b{"chain-" + std::to_string(n)};
  std::int64_t id = 0;
  const auto value = [&](std::int64_t bytes, bool persistent = false) {
    return b.add_value({.id = id++,
                        .bytes = Bytes{bytes},
                        .role = persistent ? Role::input : Role::activation,
                        .persistent = persistent});
  };
  const auto size = [&](std::size_t i) { return sizes.empty() ? 100 : sizes[i]; };
  const auto time = [&](std::size_t i) { return times.empty() ? 10.0 : times[i]; };
  std::vector<ValueId> a{value(100, true)};
  for (std::size_t i = 0; i < n; ++i) {
    a.push_back(value(size(i)));
    b.add_node({.id = static_cast<std::int64_t>(i),
                .name = "f" + std::to_string(i + 1),
                .op = "f",
                .time = {time(i)}},
               {a[i]}, {a[i + 1]});
  }
  ValueId g = a[n];
  for (std::size_t i = n; i > 0; --i) {
    const ValueId next = value(i == 1 ? 100 : size(i - 2));
    const Node node{.id = static_cast<std::int64_t>(2 * n - i),
                    .name = "b" + std::to_string(i),
                    .op = "b",
                    .phase = Phase::backward,
                    .time = {2 * time(i - 1)}};
    if (i == n) b.add_node(node, {a[i - 1], a[i]}, {next});
    else b.add_node(node, {a[i - 1], a[i], g}, {next});
    g = next;
  }
  b.add_output(g);
  return std::move(b).build();
}

namespace detail {

/// Writes a forward pass and remembers how to go back.
class StepWriter {
 public:
  explicit StepWriter(std::string name) : b(std::move(name)) {}

  ValueId value(std::int64_t bytes, Role role = Role::activation) {
    return b.add_value({.id = next_++, .bytes = Bytes{bytes}, .role = role});
  }
  ValueId parameter(std::int64_t bytes) {
    return b.add_value(
        {.id = next_++, .bytes = Bytes{bytes}, .role = Role::parameter, .persistent = true});
  }
  ValueId view(ValueId of) {
    return b.add_value({.id = next_++, .role = Role::activation, .alias_of = of});
  }
  ValueId in_place(ValueId of) {
    return b.add_value({.id = next_++, .role = Role::activation, .overwrites = of});
  }

  void node(const std::string& op, double time, std::vector<ValueId> in, std::vector<ValueId> out,
            std::vector<ValueId> updates = {}, std::int64_t workspace = 0) {
    Node n{.id = nodes_++,
           .name = op + std::to_string(nodes_),
           .op = "aten::" + op,
           .phase = back_ ? Phase::backward : Phase::forward,
           .time = {time},
           .workspace = Bytes{workspace}};
    b.add_node(std::move(n), std::span<const ValueId>{in}, std::span<const ValueId>{out},
               std::span<const ValueId>{updates});
  }

  /// Adds to the gradient of a value: the first is taken as it is, later ones are added in place.
  void give(ValueId of, ValueId gradient, double time) {
    if (grads_.size() <= of.index) grads_.resize(of.index + 1);
    ValueId& g = grads_[of.index];
    if (!g.valid()) {
      g = gradient;
      return;
    }
    const ValueId sum = in_place(g);
    node("add_", time, {g, gradient}, {sum});
    g = sum;
  }
  ValueId gradient(ValueId of) { return grads_[of.index]; }
  void output(ValueId v) { b.add_output(v); }
  void on_back(std::function<void()> f) { tape_.push_back(std::move(f)); }

  StepGraph finish() {
    back_ = true;
    for (std::size_t i = tape_.size(); i > 0; --i) tape_[i - 1]();
    return std::move(b).build();
  }

  GraphBuilder b;

 private:
  std::int64_t next_ = 0, nodes_ = 0;
  bool back_ = false;
  std::vector<ValueId> grads_;
  std::vector<std::function<void()>> tape_;
};

}  // namespace detail

struct ResnetOptions {
  std::size_t blocks = 16;
  std::int64_t batch = 16;
};

/// Bottleneck-like blocks in four stages: convolution, batch norm (updates its statistics), relu in
/// place, residual sum.
[[nodiscard]] inline StepGraph resnet_step(const ResnetOptions& options = {}) {
  detail::StepWriter w{"resnet-like-" + std::to_string(options.blocks)};
  const auto conv = [&](ValueId x, std::int64_t in, std::int64_t out, double time,
                        std::int64_t weights) {
    const ValueId weight = w.parameter(weights), y = w.value(out);
    w.node("convolution", time, {x, weight}, {y}, {}, in / 2);
    w.on_back([&w, x, y, weight, in, time, weights] {
      const ValueId gx = w.value(in, Role::gradient), gw = w.value(weights, Role::gradient);
      w.node("convolution_backward", 2 * time, {w.gradient(y), x, weight}, {gx, gw}, {}, in / 2);
      w.output(gw);
      w.give(x, gx, time / 40);
    });
    return y;
  };
  const auto norm = [&](ValueId x, std::int64_t bytes, double time) {
    const ValueId weight = w.parameter(256), mean = w.parameter(256), y = w.value(bytes),
                  save = w.value(256);
    w.node("native_batch_norm", time, {x, weight}, {y, save}, {mean});
    w.on_back([&w, x, y, weight, save, bytes, time] {
      const ValueId gx = w.value(bytes, Role::gradient), gw = w.value(256, Role::gradient);
      w.node("native_batch_norm_backward", 1.5 * time, {w.gradient(y), x, weight, save}, {gx, gw});
      w.output(gw);
      w.give(x, gx, time / 2);
    });
    return y;
  };
  const auto relu = [&](ValueId x, std::int64_t bytes, double time) {
    const ValueId y = w.in_place(x);
    w.node("relu_", time, {x}, {y});
    w.on_back([&w, x, y, bytes, time] {
      const ValueId gx = w.value(bytes, Role::gradient);
      w.node("threshold_backward", time, {w.gradient(y), y}, {gx});
      w.give(x, gx, time);
    });
    return y;
  };
  std::int64_t size = options.batch * 800000;
  ValueId x = w.b.add_value(
      {.id = -1, .name = "x", .bytes = Bytes{size / 4}, .role = Role::input, .persistent = true});
  const double unit = static_cast<double>(options.batch) * 100;
  ValueId h = conv(x, size / 4, size, unit, 40000);
  h = relu(norm(h, size, unit / 12), size, unit / 30);
  for (std::size_t i = 0; i < options.blocks; ++i) {
    const std::size_t stage = 4 * i / options.blocks;
    const std::int64_t out = (options.batch * 800000) >> stage;
    const double cheap = unit / static_cast<double>(12 << stage);
    const std::int64_t weights = std::int64_t{70000} << (2 * stage);
    ValueId skip = h;
    if (out != size || i == 0) skip = norm(conv(h, size, out, unit / 2, weights), out, cheap);
    ValueId y = relu(norm(conv(h, size, out / 4, unit / 3, weights / 4), out / 4, cheap / 4),
                     out / 4, cheap / 10);
    y = relu(norm(conv(y, out / 4, out / 4, unit / 1.5, weights / 2), out / 4, cheap / 4), out / 4,
             cheap / 10);
    y = norm(conv(y, out / 4, out, unit / 3, weights / 4), out, cheap);
    const ValueId sum = w.in_place(y);
    w.node("add_", cheap / 2, {y, skip}, {sum});
    w.on_back([&w, y, skip, sum, cheap] {
      w.give(y, w.gradient(sum), cheap / 2);
      const ValueId copy = w.view(w.gradient(sum));
      w.node("alias", 0, {w.gradient(sum)}, {copy});
      w.give(skip, copy, cheap / 2);
    });
    h = relu(sum, out, cheap / 3);
    size = out;
  }
  const ValueId loss = w.value(4, Role::other);
  w.node("loss", 10, {h}, {loss});
  w.output(loss);
  w.on_back([&w, h, size] {
    const ValueId g = w.value(size, Role::gradient);
    w.node("loss_backward", 10, {h}, {g});
    w.give(h, g, 10);
  });
  return w.finish();
}

struct TransformerOptions {
  std::size_t layers = 12;
  std::int64_t batch = 8, length = 128, hidden = 768, heads = 12;
};

/// Encoder layers: attention with views, softmax and dropout with masks, layer norm, GELU.
[[nodiscard]] inline StepGraph transformer_step(const TransformerOptions& o = {}) {
  detail::StepWriter w{"transformer-like-" + std::to_string(o.layers)};
  const std::int64_t tokens = o.batch * o.length, act = 4 * tokens * o.hidden,
                     scores = 4 * o.batch * o.heads * o.length * o.length;
  const auto gemm_us = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * 2e-5 / 1e3;
  };
  const auto cheap_us = [](std::int64_t bytes) { return static_cast<double>(bytes) * 1.5e-4; };
  const auto linear = [&](ValueId x, std::int64_t in, std::int64_t out) {
    const ValueId weight = w.parameter(4 * in * out), transposed = w.view(weight), flat = w.view(x);
    w.node("t", 0, {weight}, {transposed});
    w.node("view", 0, {x}, {flat});
    const ValueId y = w.value(4 * tokens * out), shaped = w.view(y);
    const double time = gemm_us(tokens, out, in);
    w.node("addmm", time, {flat, transposed}, {y});
    w.node("view", 0, {y}, {shaped});
    w.on_back([&w, x, flat, shaped, weight, in, out, time, tokens] {
      const ValueId gx = w.value(4 * tokens * in, Role::gradient),
                    gw = w.value(4 * in * out, Role::gradient);
      w.node("mm", time, {w.gradient(shaped), weight}, {gx});
      w.node("mm", time, {w.gradient(shaped), flat}, {gw});
      w.output(gw);
      w.give(x, gx, time / 50);
    });
    return shaped;
  };
  const auto unary = [&](const std::string& op, ValueId x, std::int64_t bytes, bool reads_output,
                         std::int64_t mask) {
    const ValueId y = w.value(bytes), extra = mask > 0 ? w.value(mask) : ValueId{};
    std::vector<ValueId> made{y};
    if (mask > 0) made.push_back(extra);
    w.node(op, cheap_us(bytes), {x}, made);
    w.on_back([&w, op, x, y, extra, bytes, reads_output, mask, t = cheap_us(bytes)] {
      const ValueId gx = w.value(bytes, Role::gradient);
      std::vector<ValueId> in{w.gradient(y)};
      if (mask > 0) in.push_back(extra);
      if (mask == 0 || op == "native_layer_norm") in.push_back(reads_output ? y : x);
      w.node(op + "_backward", 1.5 * t, in, {gx});
      w.give(x, gx, t / 2);
    });
    return y;
  };
  const auto add = [&](ValueId a, ValueId c) {
    const ValueId y = w.value(act);
    w.node("add", cheap_us(act) / 2, {a, c}, {y});
    w.on_back([&w, a, c, y, t = cheap_us(act) / 2] {
      const ValueId copy = w.view(w.gradient(y));
      w.node("alias", 0, {w.gradient(y)}, {copy});
      w.give(a, w.gradient(y), t);
      w.give(c, copy, t);
    });
    return y;
  };
  const auto matmul = [&](ValueId a, ValueId c, std::int64_t a_bytes, std::int64_t c_bytes,
                          std::int64_t bytes, double time) {
    const ValueId y = w.value(bytes);
    w.node("bmm", time, {a, c}, {y});
    w.on_back([&w, a, c, y, a_bytes, c_bytes, time] {
      const ValueId ga = w.value(a_bytes, Role::gradient), gc = w.value(c_bytes, Role::gradient);
      w.node("bmm", time, {w.gradient(y), c}, {ga});
      w.node("bmm", time, {a, w.gradient(y)}, {gc});
      w.give(a, ga, time / 20);
      w.give(c, gc, time / 20);
    });
    return y;
  };
  ValueId x = w.b.add_value(
      {.id = -1, .name = "x", .bytes = Bytes{act}, .role = Role::input, .persistent = true});
  ValueId h = unary("native_layer_norm", x, act, false, 8 * tokens);
  for (std::size_t i = 0; i < o.layers; ++i) {
    const ValueId q = linear(h, o.hidden, o.hidden), k = linear(h, o.hidden, o.hidden),
                  v = linear(h, o.hidden, o.hidden);
    const double t = gemm_us(tokens, o.length, o.hidden) * 2;
    const ValueId score = matmul(q, k, act, act, scores, t);
    const ValueId soft = unary("_softmax", score, scores, true, 0);
    const ValueId kept = unary("native_dropout", soft, scores, false, scores / 4);
    const ValueId context = matmul(kept, v, scores, act, act, t);
    const ValueId attended =
        unary("native_dropout", linear(context, o.hidden, o.hidden), act, false, act / 4);
    h = unary("native_layer_norm", add(attended, h), act, false, 8 * tokens);
    const ValueId wide = linear(h, o.hidden, 4 * o.hidden);
    const ValueId active = unary("gelu", wide, 4 * act, false, 0);
    const ValueId narrow =
        unary("native_dropout", linear(active, 4 * o.hidden, o.hidden), act, false, act / 4);
    h = unary("native_layer_norm", add(narrow, h), act, false, 8 * tokens);
  }
  const ValueId loss = w.value(4, Role::other);
  w.node("loss", 10, {h}, {loss});
  w.output(loss);
  w.on_back([&w, h, act] {
    const ValueId g = w.value(act, Role::gradient);
    w.node("loss_backward", 10, {h}, {g});
    w.give(h, g, 10);
  });
  return w.finish();
}

}  // namespace reprise::testing
