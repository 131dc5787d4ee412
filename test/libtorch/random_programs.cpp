// Any valid schedule gives eager's bits: of random programs under random schedules, and of what
// needs a care of its own.

#include <cstdio>
#include <map>

#include <reprise_test/eager.hpp>
#include <reprise_test/random_schedules.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::recording;
using namespace reprise::replaying;
using namespace reprise::training;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// What a step leaves behind.
struct Left {
  Tensor loss{};
  std::vector<Tensor> gradients{}, buffers{};
  Tensor generator{};
};

/// A step with state that can be put back to where it was.
struct Step {
  std::vector<Tensor> parameters{};
  std::vector<Tensor> buffers{};
  std::vector<Tensor> inputs{};
  std::function<Tensor(const std::vector<Tensor>&)> loss{};
  std::vector<Tensor> buffers_at_start{};

  void rewind() {
    if (buffers_at_start.empty())
      for (const Tensor& b : buffers) buffers_at_start.push_back(b.clone());
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(buffers_at_start[i]);
    for (Tensor& p : parameters) p.mutable_grad() = Tensor();
    torch::manual_seed(17);
  }
  [[nodiscard]] Left left(Tensor result) const {
    Left l{std::move(result), {}, {}, generator_state()};
    for (const Tensor& p : parameters) l.gradients.push_back(p.grad());
    for (const Tensor& b : buffers) l.buffers.push_back(b.clone());
    return l;
  }
  [[nodiscard]] Left eagerly() {
    rewind();
    Tensor result = loss(inputs);
    result.backward();
    return left(result.detach());
  }
};

bool same(const Left& a, const Left& b) {
  bool equal = same_bits(a.loss, b.loss) && same_bits(a.generator, b.generator);
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    equal = equal && same_bits(a.gradients[i], b.gradients[i]);
  for (std::size_t i = 0; i < a.buffers.size(); ++i)
    equal = equal && same_bits(a.buffers[i], b.buffers[i]);
  return equal;
}

/// One run of a schedule, in an arena or not; also that its peak is the predicted one.
struct Runner {
  Step& step;
  CapturedStep& captured;
  const AllocationTrace& trace;

  Left run(const Schedule& schedule, bool arena) {
    const Rewriting rewriting = rewrite(captured.graph(), schedule);
    lint(captured.graph(), rewriting);
    LibTorchProgram program = LibTorchBackend{}.compile(captured, rewriting);
    const BoundTensors& bound = captured.bound();
    const Bindings bindings{bound.model.parameters, bound.model.buffers, bound.inputs,
                            bound.leaves};
    step.rewind();
    RunOutcome outcome;
    ArenaMemory memory;
    const ArenaLayout layout =
        layout_arena(captured.recording(), rewriting, trace, captured.result_count());
    if (arena) memory.start(layout);
    const Bytes base = device_memory().live();
    device_memory().reset_peak();
    outcome = arena ? program.run(bindings, NullObserver{}, memory) : program.run(bindings);
    const Bytes peak = device_memory().peak() - base;
    REQUIRE(outcome.completed);
    CHECK(peak == program.peak_above_base());
    CHECK(outcome.workspace_changes == 0);
    if (arena) CHECK(memory.use().fallbacks == 0);
    const auto& gradient_of = captured.gradient_of();
    for (std::size_t i = 0; i < gradient_of.size(); ++i) {
      Tensor leaf = bound.leaves[gradient_of[i]].tensor;
      leaf.mutable_grad() = outcome.gradients[i].clone();  // the arena goes when this returns
    }
    return step.left(outcome.results.front());
  }
};

CapturedStep capture_of(Step& step, AllocationTrace& trace) {
  step.rewind();
  TraceHooks hooks;
  const CaptureOptions options{.hooks = &hooks};
  CapturedStep captured = capture(step.parameters, step.loss, options, step.inputs);
  trace = std::move(hooks.trace);
  return captured;
}

// ── random programs ──────────────────────────────────────────────────────────────────────────────

enum Kind : std::size_t {
  add,
  mul,
  mm,
  tanh,
  relu_,
  exp_,
  through_view,
  transposed,
  dropout,
  noise,
  norm,
  split,
  largest,
  layer_norm,
  cat,
  softmax,
  kinds
};
const char* const kind_names[] = {
    "add",     "mul",   "mm",   "tanh",  "relu_",   "exp_",       "through_view", "transposed",
    "dropout", "noise", "norm", "split", "largest", "layer_norm", "cat",          "softmax"};

struct Piece {
  Kind kind{};
  std::size_t a = 0, b = 0;
};

Tensor compute(const Piece& piece, const Tensor& a, const Tensor& b, const std::vector<Tensor>& p,
               const std::vector<Tensor>& buffers) {
  switch (piece.kind) {
    case add: return a + b;
    case mul: return a * b;
    case mm: return torch::mm(a, p[0]);
    case tanh: return torch::tanh(a);
    case relu_: return (a + b).relu_();
    case exp_: return (a * 0.1).exp_();
    case through_view: {
      Tensor h = (a + b).contiguous();
      h.narrow(0, 1, 2).mul_(0.25);
      h.view({-1}).narrow(0, 3, 5).add_(1);
      return h;
    }
    case transposed: return a.t().contiguous().t() + b.reshape({8, 4}).t().reshape({4, 8});
    case dropout: return torch::dropout(a, 0.4, true);
    case noise: return a * torch::rand_like(b);
    case norm:
      return torch::batch_norm(a, p[1], p[2], buffers[0], buffers[1], true, 0.1, 1e-5, false);
    case split: {
      const auto parts = torch::unsafe_split(a * 1.5, 4, 1);
      return torch::cat({parts[1], parts[0] * 2}, 1);
    }
    case largest: return a * std::get<0>(a.max(1, true)) + b;
    case layer_norm: return torch::layer_norm(a, {8}, p[1], p[2]);
    case cat: return torch::cat({a.narrow(1, 0, 4), b.narrow(1, 2, 4)}, 1);
    case softmax: return torch::softmax(a, 1) + b;
    case kinds: break;
  }
  return a;
}

Step random_step(Rng& rng, std::vector<bool>& uses) {
  std::vector<Piece> pieces(4 + rng.below(5));
  uses.assign(kinds, false);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces[i] = {static_cast<Kind>(rng.below(kinds)), rng.below(i + 1), rng.below(i + 1)};
    if (rng.chance(0.7)) pieces[i].a = i;  // mostly a chain
    uses[pieces[i].kind] = true;
  }
  torch::manual_seed(rng.below(1u << 30));
  Step step;
  step.parameters = {(torch::randn({8, 8}) * 0.3).requires_grad_(),
                     torch::randn({8}).requires_grad_(), torch::randn({8}).requires_grad_()};
  step.buffers = {torch::zeros({8}), torch::ones({8})};
  step.inputs = {torch::randn({4, 8})};
  step.loss = [pieces, p = step.parameters, b = step.buffers](const std::vector<Tensor>& in) {
    std::vector<Tensor> pool{in[0] * p[1]};
    for (const Piece& piece : pieces)
      pool.push_back(compute(piece, pool[piece.a], pool[piece.b], p, b));
    return pool.back().pow(2).mean() + pool[pool.size() / 2].sum() * 0.01;
  };
  return step;
}

struct Coverage {
  std::size_t programs = 0, cases = 0, refused = 0, recompute = 0, in_place = 0, views = 0,
              random = 0, several = 0, thrice = 0;
  std::vector<std::size_t> kind = std::vector<std::size_t>(kinds, 0);

  void note(const CapturedStep& step, const Schedule& schedule) {
    const StepGraph& graph = step.graph();
    const std::vector<std::uint32_t> runs = run_counts(graph, schedule);
    bool any = false, overwrites = false, view = false, draws = false, many = false, more = false;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (runs[i] < 2) continue;
      const NodeId n{i};
      any = true;
      more = more || runs[i] > 2;
      many = many || graph.outputs(n).size() > 1;
      const Call& call = step.recording().calls[i];
      draws = draws || (call.kind == CallKind::op && call.facts->random);
      for (ValueId v : graph.outputs(n)) {
        overwrites = overwrites || graph.value(v).overwrites.valid();
        view = view || graph.value(v).alias_of.valid();
      }
    }
    ++cases;
    recompute += any, in_place += overwrites, views += view, random += draws, several += many,
        thrice += more;
  }
};

void try_programs(std::uint64_t seed, std::size_t count, Coverage& coverage) {
  std::printf("random programs: seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng{seed};
  for (std::size_t i = 0; i < count; ++i) {
    INFO("seed " << seed << ", program " << i);
    std::vector<bool> uses;
    Step step = random_step(rng, uses);
    const Left eager = step.eagerly();
    AllocationTrace trace;
    CapturedStep captured = capture_of(step, trace);
    REQUIRE(same(step.left(captured.loss()), eager));
    ++coverage.programs;
    for (std::size_t k = 0; k < kinds; ++k) coverage.kind[k] += uses[k];
    Runner runner{step, captured, trace};
    for (int s = 0; s < 3; ++s) {
      const Schedule schedule =
          random_schedule(rng, captured.graph(), {.insertions = 1 + rng.below(5)});
      try {
        REQUIRE(same(runner.run(schedule, s > 0), eager));
        coverage.note(captured, schedule);
        // valid by the format, but it would compute something else: lint says so
      } catch (const Error& e) {
        REQUIRE(e.code() == Errc::bad_schedule);
        ++coverage.refused;
      }
    }
  }
}

/// A node and all that it needs, run again just before the first of its backward readers; `times`
/// times.
Schedule run_again(const StepGraph& graph, std::string_view op, int times = 1) {
  NodeId node{};
  for (std::size_t i = 0; i < graph.node_count() && !node.valid(); ++i)
    if (graph.node(NodeId{i}).op == op && graph.node(NodeId{i}).phase == Phase::forward)
      node = NodeId{i};
  REQUIRE(node.valid());
  std::vector<bool> inside(graph.node_count(), false);
  Schedule todo{node};
  inside[node.index] = true;
  for (std::size_t k = 0; k < todo.size(); ++k)
    for (ValueId v : reads(graph, todo[k])) {
      const NodeId maker = producer(graph, v);
      if (!maker.valid() || inside[maker.index]) continue;
      inside[maker.index] = true;
      todo.push_back(maker);
    }
  std::sort(todo.begin(), todo.end());
  Schedule schedule;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    if (graph.node(NodeId{i}).phase == Phase::backward &&
        (i == 0 || graph.node(NodeId{i - 1}).phase == Phase::forward))
      for (int t = 0; t < times; ++t) schedule.insert(schedule.end(), todo.begin(), todo.end());
    schedule.push_back(NodeId{i});
  }
  return schedule;
}

NodeId first_of(const StepGraph& graph, std::string_view op) {
  for (std::size_t i = 0; i < graph.node_count(); ++i)
    if (graph.node(NodeId{i}).op == op) return NodeId{i};
  FAIL("no node is a " << op);
  return {};
}

/// The node alone, a second time: as soon as it has run, or where backward begins.
enum class Again { at_once, before_backward };
Schedule run_alone_again(const StepGraph& graph, std::string_view op, Again when) {
  const NodeId node = first_of(graph, op);
  Schedule schedule;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const bool begins = graph.node(NodeId{i}).phase == Phase::backward && i > 0 &&
                        graph.node(NodeId{i - 1}).phase == Phase::forward;
    if (when == Again::before_backward && begins) schedule.push_back(node);
    schedule.push_back(NodeId{i});
    if (when == Again::at_once && NodeId{i} == node) schedule.push_back(node);
  }
  return schedule;
}

/// A schedule that runs the op twice on what it has already written is refused, and nothing has
/// run.
void is_refused_at_once(Step step, std::string_view op) {
  AllocationTrace trace;
  CapturedStep captured = capture_of(step, trace);
  const Schedule schedule = run_alone_again(captured.graph(), op, Again::at_once);
  CHECK_FALSE(simulate(captured.graph(), schedule).valid);
  Runner runner{step, captured, trace};
  CHECK_THROWS_AS(runner.run(schedule, false), Error);
}

/// The step with that op computed again gives eager's bits.
void is_right_again(Step step, std::string_view op, int times = 1) {
  const Left eager = step.eagerly();
  AllocationTrace trace;
  CapturedStep captured = capture_of(step, trace);
  const Schedule schedule = run_again(captured.graph(), op, times);
  REQUIRE(simulate(captured.graph(), schedule).valid);
  CHECK(schedule.size() > captured.graph().node_count());
  Runner runner{step, captured, trace};
  CHECK(same(runner.run(schedule, false), eager));
  CHECK(same(runner.run(schedule, true), eager));
}

Step small(std::function<Tensor(const std::vector<Tensor>& p, const std::vector<Tensor>& b,
                                const Tensor& x)>
               f) {
  torch::manual_seed(4);
  Step step;
  step.parameters = {(torch::randn({8, 8}) * 0.3).requires_grad_(),
                     torch::randn({8}).requires_grad_(), torch::randn({8}).requires_grad_()};
  step.buffers = {torch::zeros({8}), torch::ones({8}), torch::zeros({}, torch::kLong)};
  step.inputs = {torch::randn({4, 8})};
  step.loss = [f, p = step.parameters, b = step.buffers](const std::vector<Tensor>& in) {
    return f(p, b, in[0]);
  };
  return step;
}

}  // namespace

TEST_CASE("random programs under random valid schedules are eager's, bit for bit") {
  Coverage c;
  try_programs(20261116, 500, c);
  std::printf(
      "%zu programs, %zu cases (%zu schedules refused by lint): %zu recompute, %zu in-place, %zu "
      "views, %zu random, "
      "%zu several outputs, %zu a node twice more\n",
      c.programs, c.cases, c.refused, c.recompute, c.in_place, c.views, c.random, c.several,
      c.thrice);
  for (std::size_t k = 0; k < kinds; ++k) std::printf("  %s %zu", kind_names[k], c.kind[k]);
  std::printf("\n");
  CHECK(c.programs >= 500);
  CHECK(2 * c.recompute >= c.cases);
  for (const std::size_t covered : {c.in_place, c.views, c.random, c.several, c.thrice})
    CHECK(20 * covered >= c.cases);
  for (std::size_t k = 0; k < kinds; ++k) CHECK(20 * c.kind[k] >= c.programs);
  CHECK(20 * c.refused <= c.cases);
}

TEST_CASE(
    "a dropout mask is the same when it is drawn again, and the stream is as if it had not been") {
  is_right_again(small([](const auto& p, const auto&, const Tensor& x) {
                   const Tensor dropped = torch::dropout(torch::mm(x, p[0]), 0.5, true);
                   const Tensor later = torch::rand({4});  // drawn between the two
                   return dropped.pow(2).sum() + (later * p[1].sum()).sum();
                 }),
                 "aten::div_");  // what makes the mask, in place, of what was drawn
}

TEST_CASE("random numbers that are drawn again between other draws") {
  is_right_again(small([](const auto& p, const auto&, const Tensor& x) {
                   const Tensor noise = torch::rand_like(x);
                   const Tensor more = torch::rand_like(x);
                   return (torch::mm(x, p[0]) * noise * more).pow(2).sum();
                 }),
                 "aten::rand_like", 3);
}

TEST_CASE("batch norm's statistics move once, also when it is computed three times") {
  is_right_again(small([](const auto& p, const auto& b, const Tensor& x) {
                   return torch::batch_norm(torch::mm(x, p[0]), p[1], p[2], b[0], b[1], true, 0.1,
                                            1e-5, false)
                       .pow(2)
                       .sum();
                 }),
                 "aten::native_batch_norm", 2);
}

TEST_CASE("the count of batches moves once: its node never runs again, batch norm's does") {
  const Step step = small([](const auto& p, const auto& b, const Tensor& x) {
    const torch::NoGradGuard no_grad;
    b[2].add_(1);  // num_batches_tracked
    const torch::AutoGradMode grad(true);
    return torch::batch_norm(torch::mm(x, p[0]), p[1], p[2], b[0], b[1], true, 0.1, 1e-5, false)
        .pow(2)
        .sum();
  });
  is_right_again(step, "aten::native_batch_norm", 2);
  is_refused_at_once(step, "aten::add_");
}

TEST_CASE(
    "an activation that was written in place is computed again through its input, never on its own "
    "output") {
  const Step step = small([](const auto& p, const auto&, const Tensor& x) {
    Tensor h = torch::mm(x, p[0]);
    return torch::leaky_relu_(h, 0.3).pow(2).sum();  // twice is not the same as once
  });
  is_right_again(step, "aten::leaky_relu_");
  is_refused_at_once(step, "aten::leaky_relu_");
}

TEST_CASE("a view of something that is computed again") {
  is_right_again(small([](const auto& p, const auto&, const Tensor& x) {
                   return torch::mm(x, p[0]).t().narrow(0, 2, 3).pow(2).sum();
                 }),
                 "aten::slice");
}

TEST_CASE("writes through a view are made again") {
  is_right_again(small([](const auto& p, const auto&, const Tensor& x) {
                   Tensor h = torch::mm(x, p[0]);
                   h.narrow(1, 2, 3).mul_(2);
                   h.view({-1}).narrow(0, 0, 5).add_(1);
                   return h.pow(2).sum();
                 }),
                 "aten::add_");
}

TEST_CASE("a parameter that is used twice") {
  is_right_again(small([](const auto& p, const auto&, const Tensor& x) {
                   return torch::mm(torch::tanh(torch::mm(x, p[0])), p[0].t()).pow(2).sum();
                 }),
                 "aten::tanh");
}

TEST_CASE("a parameter that two modules share is one storage, counted once") {
  torch::manual_seed(4);
  Step step;
  Tensor w = (torch::randn({8, 8}) * 0.3).requires_grad_();
  step.parameters = {w, w};
  step.inputs = {torch::randn({4, 8})};
  step.loss = [p = step.parameters](const std::vector<Tensor>& in) {
    return torch::mm(torch::tanh(torch::mm(in[0], p[0])), p[1].t()).pow(2).sum();
  };
  is_right_again(step, "aten::tanh");
  AllocationTrace trace;
  const CapturedStep captured = capture_of(step, trace);
  Bytes parameters{};
  for (std::size_t i = 0; i < captured.graph().value_count(); ++i)
    if (captured.graph().value(ValueId{i}).role == Role::parameter)
      parameters += captured.graph().value(ValueId{i}).bytes;
  CHECK(parameters == Bytes{8 * 8 * 4});
}

TEST_CASE("casts of autocast are computed again as they were") {
  is_right_again(small([](const auto& p, const auto&, const Tensor& x) {
                   at::autocast::set_autocast_enabled(at::kCPU, true);
                   const Tensor h = torch::mm(torch::tanh(torch::mm(x, p[0])), p[0]);
                   at::autocast::clear_cache();
                   at::autocast::set_autocast_enabled(at::kCPU, false);
                   return h.to(torch::kFloat).pow(2).sum();
                 }),
                 "aten::tanh");
}

TEST_CASE("a view of an older instance is read after its base was computed again: both are alive") {
  Step step = small([](const auto& p, const auto&, const Tensor& x) {
    const Tensor h = torch::mm(x, p[0]);
    return torch::mm(h.t(), h).sin().sum();  // backward reads the view of h, and h
  });
  const Left eager = step.eagerly();
  AllocationTrace trace;
  CapturedStep captured = capture_of(step, trace);
  const StepGraph& graph = captured.graph();
  const Schedule schedule = run_alone_again(graph, "aten::mm", Again::before_backward);
  const Rewriting rewriting = rewrite(graph, schedule);
  std::vector<std::size_t> made, freed;  // by instance of h
  for (std::size_t i = 0; i < rewriting.steps.size(); ++i) {
    const StorageId h = graph.value(graph.outputs(first_of(graph, "aten::mm"))[0]).storage;
    for (AllocationId a : rewriting.steps[i].allocates)
      if (rewriting.allocations[a.index].storage == h) made.push_back(i);
    for (AllocationId a : rewriting.steps[i].frees)
      if (rewriting.allocations[a.index].storage == h) freed.push_back(i);
  }
  REQUIRE(made.size() == 2);
  REQUIRE(freed.size() == 2);
  CHECK(made[1] < freed[0]);
  Runner runner{step, captured, trace};
  CHECK(same(runner.run(schedule, false), eager));
  CHECK(same(runner.run(schedule, true), eager));
}

TEST_CASE("a node that is computed four times") {
  is_right_again(small([](const auto& p, const auto&, const Tensor& x) {
                   const Tensor h = torch::tanh(torch::mm(x, p[0]));
                   return (h * h).sum() + h.sin().sum();
                 }),
                 "aten::tanh", 3);
}
