// Steps whose recomputation would not end: where every value needs all earlier ones, or thousands
// of ops run one after the other.
//
// Counted in ops, so that no load changes what a test says: a step recomputes at most
// Rematerializer::recompute_bound() ops, and then every call at most once more.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::guided;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// A recurrent model that attends over all of its earlier states: to recompute one state takes all
/// that came before it.
Program attending_recurrence(int length) {
  auto stack = std::make_shared<Stack>(2, 32);
  auto optimizer = std::make_shared<torch::optim::SGD>(stack->layers->parameters(),
                                                       torch::optim::SGDOptions(0.01));
  auto loss = std::make_shared<Tensor>();
  const Tensor x = torch::randn({length, 24, 32});
  return {[=](int) {
            optimizer->zero_grad();
            std::vector<Tensor> states{torch::zeros({24, 32})};
            for (int t = 0; t < length; ++t) {
              const Tensor earlier = torch::stack(states);
              const Tensor weights = (earlier * states.back()).sum(-1, true).softmax(0);
              const Tensor context = (weights * earlier).sum(0);
              states.push_back(torch::tanh(stack->forward(x[t] + context, gelu)));
            }
            Tensor now = torch::stack(states).pow(2).mean();
            now.backward();
            optimizer->step();
            *loss = now.detach();
          },
          [=] {
            std::vector<Tensor> all = all_of(*stack->layers);
            all.push_back(*loss);
            return all;
          }};
}

/// A chain of small layers, each of which keeps something for its backward pass.
Program long_chain(int layers) {
  auto stack = std::make_shared<Stack>(layers, 64);
  auto optimizer = std::make_shared<torch::optim::SGD>(stack->layers->parameters(),
                                                       torch::optim::SGDOptions(0.01));
  const Tensor x = torch::randn({192, 64});
  return {[=](int) {
            optimizer->zero_grad();
            const auto between = [](Tensor h, int) { return torch::tanh(h); };
            stack->forward(x, between).pow(2).mean().backward();
            optimizer->step();
          },
          [=] { return all_of(*stack->layers); }};
}

/// Thousands of ops of a few microseconds each.
Program tiny_ops(int count) {
  torch::manual_seed(1);
  const Tensor a = torch::full({32, 32}, 0.999F).requires_grad_(), x = torch::randn({32, 32});
  auto state = std::make_shared<Tensor>();
  return {[=](int) {
            a.mutable_grad() = Tensor();
            Tensor h = x;
            for (int i = 0; i < count; i += 2) h = torch::sin(h * a);
            h.sum().backward();
            *state = h.detach();
          },
          [=] {
            return std::vector<Tensor>{a.grad(), *state};
          }};
}

/// Of one thread: thousands of ops of some microseconds each would wait for the others more than
/// they run.
struct OneThread {
  int before = at::get_num_threads();
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before); }
};

/// Online at several budgets.
void check_ends(const std::function<Program()>& make, std::initializer_list<double> shares,
                bool meets_bound) {
  const OneThread one_thread;
  const Reference expected = reference(make, 2);
  bool any_spills = false;
  for (const double share : shares) {
    Program program = make();
    const Bytes start = device_memory().live();
    const Bytes bytes =
        start - expected.start + expected.floor + share_of(share, expected.eager - expected.floor);
    std::string notices;
    MemoryBudgetOptions options{.run = {.planner = plan_by_bytes, .max_plans = 0},
                                .over_budget = OverBudget::go_on};
    options.run.on_notice = [&](const std::string& text) { notices += text; };
    MemoryBudget budget{bytes, options};
    for (std::size_t i = 0; i < expected.states.size(); ++i) {
      torch::manual_seed(50 + i);
      {
        auto step = budget.step();
        program.step(static_cast<int>(i));
      }
      const GuidedStepReport& last = budget.last();
      const auto calls = static_cast<std::int64_t>(budget.graph().node_count());
      INFO(share << " %, step " << i << ": " << calls << " calls, " << last.recomputed << " again, "
                 << last.evicted << " evicted, moved " << last.moved.count << ", peak "
                 << last.peak.count << " of " << last.budget.count << ", floor "
                 << last.floor.count);
      UNSCOPED_INFO(notices);
      CHECK((contents(program.state()) == expected.states[i]));
      CHECK(last.recomputed > 0);
      CHECK(last.recomputed <=
            Rematerializer::recompute_bound(static_cast<std::size_t>(calls)) + calls);
      if (last.recomputed > Rematerializer::recompute_bound(static_cast<std::size_t>(calls)))
        CHECK(last.only_spills);
      if (!last.over_budget) CHECK(last.peak <= last.budget);
      any_spills = any_spills || last.only_spills;
    }
  }
  if (meets_bound) CHECK(any_spills);
}

}  // namespace

TEST_CASE("a recurrent model that attends over all its earlier states ends in any budget",
          "[wild]") {
  check_ends([] { return attending_recurrence(48); }, {50, 25, 10, 1, 0.2}, true);
}

TEST_CASE("a long chain of small layers ends in any budget", "[wild]") {
  check_ends([] { return long_chain(400); }, {50, 25, 10, 1}, false);
}

TEST_CASE("thousands of tiny ops end in any budget", "[wild]") {
  check_ends([] { return tiny_ops(3000); }, {50, 25, 10, 1, 0.3}, true);
}

TEST_CASE("a tensor that is pinned stays, also where all others come back after it", "[wild]") {
  const OneThread one_thread;
  const Tensor x = torch::rand({128, 128});
  const Bytes size{128 * 128 * 4};
  int spilling = 0;
  for (int k = 0; k < 27; ++k) {  // some of them reach the bound where they pin
    const int reads = k / 3, pinned = 20 + 9 * (k % 3);
    BasicMemoryBudget<LeastRecentlyUsed> budget{
        device_memory().live() + Bytes{4 * size.count},
        {.run = {.max_plans = 0}, .over_budget = OverBudget::go_on}};
    {
      auto step = budget.step();
      const torch::NoGradGuard no_grad;
      std::vector<Tensor> kept{x};
      for (int i = 1; i < 60; ++i) kept.push_back(torch::tanh(kept.back()));
      for (int i = 0; i < reads; ++i)
        static_cast<void>(kept[static_cast<std::size_t>(59 - 4 * i)] + 1);
      const Tensor& t = kept[static_cast<std::size_t>(pinned)];
      step.pin(t);
      const Tensor inside = torch::from_blob(t.data_ptr(), {128, 128}).clone();
      Tensor expected = x;
      for (int i = 1; i <= pinned; ++i) expected = torch::tanh(expected);
      CHECK(inside.equal(expected));
    }
    spilling += budget.last().only_spills ? 1 : 0;
  }
  CHECK(spilling > 0);
  CHECK(spilling < 27);
}
