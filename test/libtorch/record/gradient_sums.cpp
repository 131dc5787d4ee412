// Sums of gradients over one of their summands: which, that they are carried out, and that nobody
// notices.

#include <reprise_test/guided.hpp>

#include <reprise/libtorch/device/block_donation.hpp>
#include <reprise/libtorch/record/gradient_sums.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::recording;
using namespace reprise::replaying;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

// the table is what takes most: the sum is where the peak is
constexpr std::int64_t words = 1000, width = 64;
constexpr Bytes table_bytes{words * width * 4};

/// Words in, words out, with one table for both: its gradient is a sum of two.
struct Tied : torch::nn::Module {
  Tied() {
    torch::manual_seed(1);
    table = register_module("table", torch::nn::Embedding(words, width));
    inner = register_module(
        "inner", torch::nn::Sequential(torch::nn::Linear(width, 4 * width), torch::nn::GELU(),
                                       torch::nn::Linear(4 * width, width)));
  }
  Tensor looked_up{};
  Tensor forward(const Tensor& x) {
    looked_up = table(x);
    return torch::mm(inner->forward(looked_up), table->weight.t()).pow(2).mean();
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Sequential inner{nullptr};
};

Tensor some_words() { return torch::arange(4).mul(67).remainder(words); }

/// The summands that are overwritten where this runs as a part of backward.
std::vector<ValueId> overwritten_in(const std::function<void()>& run) {
  const torch::NoGradGuard no_grad;
  Recorder recorder;
  recorder.enter(Phase::backward);
  run();
  std::vector<ValueId> found;
  for (ValueId v : summands_to_overwrite(recorder.finish()))
    if (v.valid()) found.push_back(v);
  return found;
}

Tensor made(double value) { return torch::full({8, 8}, value); }

}  // namespace

TEST_CASE("a sum may be written over a summand that ends with it, the second one first",
          "[gradient_sums]") {
  Tensor kept = made(9);
  CHECK(overwritten_in([] { static_cast<void>((made(1) + made(2)).sum()); }).size() == 1);
  CHECK(overwritten_in([&] { static_cast<void>((kept + made(2)).sum()); }).size() == 1);
  const auto first = overwritten_in([] {
    Tensor a = made(1), b = made(2), c = a + b;
    static_cast<void>(b.sum());
  });
  REQUIRE(first.size() == 1);
  const auto second = overwritten_in([] {
    Tensor a = made(1), b = made(2), c = a + b;
    static_cast<void>(c.sum());
  });
  REQUIRE(second.size() == 1);
  CHECK(first[0].index < second[0].index);
}

TEST_CASE("a sum has memory of its own where a summand is needed, or is not like it",
          "[gradient_sums]") {
  Tensor kept = made(9), outside = made(8);
  // alive at the end
  CHECK(overwritten_in([&] {
          kept = made(1), outside = made(2), static_cast<void>((kept + outside).sum());
        }).empty());
  // from before the step
  CHECK(overwritten_in([&] { static_cast<void>((outside + kept).sum()); }).empty());
  CHECK(overwritten_in([] {
          Tensor a = made(1), b = made(2), c = a + b;
          static_cast<void>(torch::mm(a, b));
        }).empty());
  // not a plain sum
  CHECK(overwritten_in([] { static_cast<void>(torch::add(made(1), made(2), 2).sum()); }).empty());
  CHECK(
      overwritten_in([&] { static_cast<void>((outside + torch::full({8}, 2.0)).sum()); }).empty());
  // it would lie otherwise
  CHECK(overwritten_in([&] { static_cast<void>((outside + made(2).t()).sum()); }).empty());
  // a part
  CHECK(overwritten_in([&] {
          static_cast<void>((outside + torch::full({16, 8}, 2.0).narrow(0, 8, 8)).sum());
        }).empty());
  // converted first
  CHECK(overwritten_in([&] {
          static_cast<void>((outside + made(2).to(torch::kDouble)).sum());
        }).empty());
  CHECK(overwritten_in([&] {
          static_cast<void>((outside.to(torch::kDouble) + made(2)).sum());
        }).empty());
  CHECK(overwritten_in([] {
          Tensor a = made(1);
          static_cast<void>((a + a).sum());
        }).empty());
}

TEST_CASE("an op's result takes the place of an operand, and memory is counted once",
          "[gradient_sums]") {
  Tensor a = made(1), b = made(2);
  const Bytes before = device_memory().live();
  device_memory().reset_peak();
  void* const place = b.data_ptr();
  Tensor c;
  {
    BlockDonation takeover(b.storage());
    CHECK_FALSE(takeover.taken());
    c = a + b;
    CHECK(device_memory().peak() == before);
    REQUIRE(takeover.taken_by(c));
    takeover.leave(std::exchange(takeover.pointer(), c10::DataPtr{}));
  }
  CHECK(c.data_ptr() == place);
  CHECK(c.equal(made(3)));
  CHECK(device_memory().live() == before);
  b.reset();
  CHECK(device_memory().live() == before);
  c.reset();
  CHECK(device_memory().live() == before - 256_B);
}

TEST_CASE("where the op throws, the block is still the operand's", "[gradient_sums]") {
  Tensor b = made(2);
  const Bytes before = device_memory().live();
  const auto failing = [&] {
    BlockDonation takeover(b.storage());
    const Tensor result = torch::empty({8, 8});
    CHECK(takeover.taken());
    CHECK(result.data_ptr() == b.data_ptr());
    throw std::runtime_error("as an op would");
  };
  CHECK_THROWS(failing());
  CHECK(device_memory().live() == before);
  CHECK(b.equal(made(2)));
  const Tensor other = torch::empty({8, 8});
  CHECK(other.data_ptr() != b.data_ptr());
}

TEST_CASE("a block that something else than the result took is told of", "[gradient_sums]") {
  Tensor b = made(2);
  BlockDonation takeover(b.storage());
  const Tensor workspace = torch::empty({8, 8}), result = torch::empty({8, 8});
  CHECK_THROWS_AS(takeover.taken_by(result), Error);
}

TEST_CASE("a sum that is small and does not outlive the step is left as it is", "[gradient_sums]") {
  CHECK(overwritten_in([] {
          const Tensor large = torch::ones({256, 256});
          Tensor a = made(1), b = made(2), c = a + b;
          static_cast<void>(c.sum());
        }).empty());
  Tensor kept;
  CHECK(overwritten_in([&] {
          const Tensor large = torch::ones({256, 256});
          Tensor a = made(1), b = made(2);
          kept = a + b;
        }).size() == 1);
}

TEST_CASE("an operand that no op asks for stays as it is", "[gradient_sums]") {
  Tensor b = made(2);
  {
    BlockDonation takeover(b.storage());
    CHECK(torch::empty({3}).data_ptr() != b.data_ptr());
    CHECK_FALSE(takeover.taken());
  }
  CHECK(torch::empty({8, 8}).data_ptr() != b.data_ptr());
  CHECK(b.equal(made(2)));
}

TEST_CASE("with tied weights a replayed step takes one table less than eager, with the same bits",
          "[gradient_sums]") {
  const Tensor x = some_words();
  const auto eager_step = [&](Tied& net) {
    net.zero_grad();
    Tensor loss = net.forward(x);
    net.looked_up.reset();
    loss.backward();
    return loss.detach();
  };
  auto net = std::make_shared<Tied>(), other = std::make_shared<Tied>();
  const Bytes before = device_memory().live();
  static_cast<void>(eager_step(*other));
  other->zero_grad();
  device_memory().reset_peak();
  const Tensor expected = eager_step(*other);
  const Bytes eager = device_memory().peak() - before;

  TrainStep step{net, [&](Tensor words_in) {
                   Tensor loss = net->forward(words_in);
                   net->looked_up.reset();
                   return loss;
                 }};
  for (int i = 0; i < 6; ++i) {
    net->zero_grad();
    const Tensor loss = step(x);
    CHECK(loss.equal(expected));
    CHECK(net->table->weight.grad().equal(other->table->weight.grad()));
  }
  net->zero_grad();
  const Bytes start = device_memory().live();
  device_memory().reset_peak();
  static_cast<void>(step(x));
  CHECK(step.counters().replays >= 1);
  CHECK(device_memory().peak() - start <=
        eager - table_bytes + 4_KiB);  // the peak is elsewhere now

  const StepGraph& graph = step.graph();
  std::size_t sums = 0;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    if (graph.node(NodeId{i}).op != "aten::add" || graph.node(NodeId{i}).phase != Phase::backward)
      continue;
    ++sums;
    CHECK_FALSE(graph.node(NodeId{i}).recomputable);
    CHECK(graph.value(graph.outputs(NodeId{i})[0]).overwrites.valid());
  }
  CHECK(sums == 1);
}

namespace {

Program tied_program(const std::function<void(Tied&, Tensor&)>& before_backward = {}) {
  auto net = std::make_shared<Tied>();
  auto optimizer =
      std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01));
  auto held = std::make_shared<Tensor>();
  const Tensor x = some_words();
  return {[=](int) {
            optimizer->zero_grad();
            Tensor loss = net->forward(x);
            if (before_backward) before_backward(*net, *held);
            net->looked_up.reset();
            loss.backward();
            optimizer->step();
          },
          [=] {
            std::vector<Tensor> tensors = all_of(*net);
            tensors.push_back(*held);
            return tensors;
          }};
}

/// Holds what a backward function hands on.
struct Hold final : torch::autograd::FunctionPostHook {
  explicit Hold(Tensor& to) : held(to) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    held = outputs.at(0);
    return outputs;
  }
  Tensor& held;
};

}  // namespace

TEST_CASE(
    "with tied weights a plan needs one table less, and nobody computes a gradient twice for it",
    "[gradient_sums]") {
  const auto make = [] { return tied_program(); };
  const Reference expected = reference(make, 5, true);
  CHECK(expected.own <= expected.eager - table_bytes + 4_KiB);  // the sum is where eager takes most
  const Outcome outcome = run_inside(make, expected, 50);
  CHECK(outcome.counters.planned_steps >= 4);
  for (std::size_t i = 1; i < outcome.steps.size(); ++i) {
    CHECK(outcome.steps[i].peak == outcome.steps[i].predicted_peak);
    // what it would be, is told as before
    CHECK(outcome.steps[i].eager_peak - outcome.start == expected.eager - expected.start);
    CHECK(outcome.steps[i].moved == 0_B);
  }
  for (const double share : {30.0, 15.0, least})
    CHECK(run_inside(make, expected, share).counters.planned_steps >= 4);
}

TEST_CASE("a summand that the user holds is what it was", "[gradient_sums]") {
  check_equal([] {
    return tied_program([](Tied& net, Tensor& held) {
      net.looked_up.grad_fn()->add_post_hook(std::make_unique<Hold>(held));
    });
  });
}

TEST_CASE("a summand that the user holds in some steps only is brought back", "[gradient_sums]") {
  check_equal([] {
    auto i = std::make_shared<int>(0);
    return tied_program([i](Tied& net, Tensor& held) {
      held.reset();
      if (++*i > 2) net.looked_up.grad_fn()->add_post_hook(std::make_unique<Hold>(held));
    });
  });
}
