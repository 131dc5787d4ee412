// Raw pointers into what existed before the step: taken before it, or in it, and read or written
// whenever the loop likes.

#include <reprise_test/wild.hpp>

#include <sstream>
#include <thread>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// What a loop holds a pointer to, since before the step. Large enough to be spilled.
struct Held {
  std::shared_ptr<Stack> stack = std::make_shared<Stack>(3);
  Tensor x = torch::randn({128, 64});
  Tensor table = torch::randn({64, 64});  // a buffer: every pass reads it
  Tensor target{};
  float* pointer = nullptr;

  void hold(const Tensor& tensor) {
    target = tensor.detach();
    pointer = target.data_ptr<float>();
  }
  void hold_parameter() { hold(stack->layers->parameters()[2]); }
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(target.numel()); }
  Tensor forward() const { return stack->forward(x, gelu).mm(table); }
  [[nodiscard]] double sum() const {
    double all = 0;
    for (std::size_t i = 0; i < count(); ++i) all += static_cast<const volatile float*>(pointer)[i];
    return all;
  }
};

/// Forward twice, and between the two `meddle`; what the first pass has made is read again
/// afterwards. Then backward and an update.
Program meddling(const std::shared_ptr<Held>& held,
                 const std::function<double(Held&, int step)>& meddle) {
  const auto loss = std::make_shared<Tensor>();
  return {.step =
              [=](int i) {
                Held& h = *held;
                h.stack->layers->zero_grad();
                Tensor early;
                double seen = 0;
                {
                  const torch::NoGradGuard no_grad;
                  early = h.forward();
                  seen = meddle(h, i);
                  early = early + h.forward() * 0.5;
                }
                Tensor now = h.forward().pow(2).mean() + early.mean() + seen;
                now.backward();
                const torch::NoGradGuard no_grad;
                for (Tensor& p : h.stack->layers->parameters()) p.sub_(p.grad() * 0.01);
                *loss = now.detach() + early.sum() + h.sum();
              },
          .state =
              [=] {
                std::vector<Tensor> all = all_of(*held->stack->layers);
                for (const Tensor& t : {held->x, held->table, *loss}) all.push_back(t);
                return all;
              },
          .after = [=](int) { CHECK(held->target.const_data_ptr<float>() == held->pointer); }};
}

std::int64_t spills(const std::vector<WildOutcome>& outcomes) {
  std::int64_t bytes = 0;
  for (const WildOutcome& outcome : outcomes) bytes += outcome.counters.moved.count;
  return bytes;
}

/// A loop that reads what it holds, and one that writes it: all of it, its first number, or the
/// middle.
void check_reads(const std::function<void(Held&)>& hold) {
  const auto outcomes = check_wild([&] {
    const auto held = std::make_shared<Held>();
    hold(*held);
    return meddling(held, [](Held& h, int) { return h.sum(); });
  });
  CHECK(spills(outcomes) > 0);
}
void check_writes(const std::function<void(Held&)>& hold) {
  // nobody tells of a write through a pointer from before the step
  if (!ProtectedBlocks::available()) return;
  check_wild([&] {
    const auto held = std::make_shared<Held>();
    hold(*held);
    return meddling(held, [](Held& h, int i) {
      if (i % 3 == 0) h.pointer[0] += 0.25f;
      if (i % 3 == 1) h.pointer[h.count() / 2] -= 0.5f;
      if (i % 3 == 2)
        for (std::size_t k = 0; k < h.count(); ++k) h.pointer[k] *= 0.9f;
      return 0;
    });
  });
}

}  // namespace

TEST_CASE("a parameter is read through a pointer from before the step", "[wild]") {
  check_reads([](Held& h) { h.hold_parameter(); });
}
TEST_CASE("an input is read through a pointer from before the step", "[wild]") {
  check_reads([](Held& h) { h.hold(h.x); });
}
TEST_CASE("a buffer is read through a pointer from before the step", "[wild]") {
  check_reads([](Held& h) { h.hold(h.table); });
}

TEST_CASE("a parameter is written through a pointer from before the step", "[wild]") {
  check_writes([](Held& h) { h.hold_parameter(); });
}
TEST_CASE("a small parameter is written through a pointer from before the step", "[wild]") {
  // a bias: less than a page
  check_writes([](Held& h) { h.hold(h.stack->layers->parameters()[1]); });
}
TEST_CASE("an input is written through a pointer from before the step", "[wild]") {
  check_writes([](Held& h) { h.hold(h.x); });
}
TEST_CASE("a buffer is written through a pointer from before the step", "[wild]") {
  check_writes([](Held& h) { h.hold(h.table); });
}

TEST_CASE(
    "an op reads and another writes a parameter through from_blob over a pointer from before the "
    "step",
    "[wild]") {
  check_wild([] {
    const auto held = std::make_shared<Held>();
    held->hold_parameter();
    const Tensor blob = torch::from_blob(held->pointer, held->target.sizes());
    return meddling(held, [blob](Held&, int i) {
      const double seen = blob.sum().item<double>();
      if (i % 2 == 1) blob.mul_(0.9);
      return seen;
    });
  });
}

TEST_CASE("optimizer state is read and written through pointers from before the step", "[wild]") {
  check_wild([] {
    const auto stack = std::make_shared<Stack>(3);
    const auto optimizer = std::make_shared<torch::optim::Adam>(stack->layers->parameters(),
                                                                torch::optim::AdamOptions(0.01));
    const auto seen = std::make_shared<double>(0);
    const Tensor x = torch::randn({128, 64});
    const auto states = [=] {
      std::vector<Tensor> all;
      for (const Tensor& p : stack->layers->parameters()) {
        const auto it = optimizer->state().find(p.unsafeGetTensorImpl());
        if (it == optimizer->state().end()) continue;
        const auto& state = static_cast<const torch::optim::AdamParamState&>(*it->second);
        all.push_back(state.exp_avg());
        all.push_back(state.exp_avg_sq());
      }
      return all;
    };
    const auto pointers = std::make_shared<std::vector<std::pair<float*, std::int64_t>>>();
    return Program{.step =
                       [=](int i) {
                         optimizer->zero_grad();
                         Tensor loss = stack->forward(x, gelu).pow(2).mean();
                         for (const auto& [p, n] : *pointers) *seen += p[n / 2];
                         loss.backward();
                         optimizer->step();
                         for (const auto& [p, n] : *pointers) {
                           *seen += p[n - 1];
                           if (i % 2 == 0) p[n / 2] *= 0.5f;
                         }
                       },
                   .state =
                       [=] {
                         std::vector<Tensor> all = all_of(*stack->layers);
                         for (const Tensor& t : states()) all.push_back(t);
                         all.push_back(torch::tensor(*seen, torch::kDouble));
                         return all;
                       },
                   .after =
                       [=](int) {
                         pointers->clear();
                         for (const Tensor& t : states())
                           pointers->emplace_back(t.data_ptr<float>(), t.numel());
                       }};
  });
}

TEST_CASE("weights are updated by hand through data_ptr() after backward", "[wild]") {
  check_wild([] {
    return stack_program({}, [](Stack& stack, const Tensor& x, int) {
      stack.layers->zero_grad();
      stack.forward(x, gelu).pow(2).mean().backward();
      for (const Tensor& p : stack.layers->parameters()) {
        auto* w = p.data_ptr<float>();
        const auto* g = p.grad().data_ptr<float>();
        for (std::int64_t i = 0; i < p.numel(); ++i) w[i] -= 0.01f * g[i];
      }
    });
  });
}

TEST_CASE("a thread that has not joined reads and writes a parameter in the middle of the step",
          "[wild]") {
  if (!ProtectedBlocks::available()) return;
  check_wild([] {
    const auto held = std::make_shared<Held>();
    held->hold_parameter();
    return meddling(held, [](Held& h, int i) {
      double seen = 0;
      std::thread([&] {
        seen = h.sum();
        if (i % 2 == 1) h.pointer[h.count() / 2] = 0.125f;
      }).join();
      return seen;
    });
  });
}

TEST_CASE("the model is saved in the middle of the step", "[wild]") {
  check_wild([] {
    const auto held = std::make_shared<Held>();
    held->hold_parameter();
    return meddling(held, [](Held& h, int) {
      std::stringstream file;
      torch::save(h.stack->layers, file);
      torch::nn::Sequential other;
      for (int k = 0; k < 3; ++k) other->push_back(torch::nn::Linear(64, 64));
      torch::load(other, file);
      double all = 0;
      for (const Tensor& p : other->parameters())
        for (std::int64_t k = 0; k < p.numel(); ++k) all += p.const_data_ptr<float>()[k];
      return all;
    });
  });
}

TEST_CASE("a parameter is printed in the middle of the step", "[wild]") {
  if (!ProtectedBlocks::available()) return;
  check_wild(
      [] {
        const auto held = std::make_shared<Held>();
        held->hold_parameter();
        return meddling(held, [](Held& h, int) {
          // through a copy that LibTorch makes, and reads through a pointer
          std::ostringstream text;
          text << h.target;
          return static_cast<double>(std::hash<std::string>{}(text.str()) % 1000);
        });
      },
      {.options = {.raw_pointers = true}});
}

// ── what the step itself has made, where raw pointers are asked for ──────────────────────────────

namespace {

double sum_of(const float* numbers, std::int64_t count) {
  double all = 0;
  for (std::int64_t i = 0; i < count; ++i) all += static_cast<const volatile float*>(numbers)[i];
  return all;
}

/// A loop that keeps what its layers make, and a pointer to each from when it was made, and reads
/// them by `read` after forward and backward.
void check_reads_of_activations(
    const std::function<double(const Tensor& made, const float* since_then)>& read) {
  if (!ProtectedBlocks::available()) return;
  const auto outcomes = check_wild(
      [&] {
        const auto stack = std::make_shared<Stack>(4);
        const auto seen = std::make_shared<double>(0);
        const Tensor x = torch::randn({128, 64});
        return Program{.step =
                           [=](int) {
                             std::vector<std::pair<Tensor, const float*>> made;
                             stack->layers->zero_grad();
                             const Tensor h = stack->forward(x, [&](const Tensor& before, int) {
                               Tensor after = torch::gelu(before);
                               made.emplace_back(after.detach(), after.const_data_ptr<float>());
                               return after;
                             });
                             for (const auto& [tensor, pointer] : made)
                               *seen += read(tensor, pointer);
                             h.pow(2).mean().backward();
                             for (const auto& [tensor, pointer] : made)
                               *seen += read(tensor, pointer);
                             const torch::NoGradGuard no_grad;
                             for (Tensor& p : stack->layers->parameters()) p.sub_(p.grad() * 0.01);
                           },
                       .state =
                           [=] {
                             std::vector<Tensor> all = all_of(*stack->layers);
                             all.push_back(torch::tensor(*seen, torch::kDouble));
                             return all;
                           }};
      },
      {.options = {.raw_pointers = true}});
  std::int64_t again = 0;
  for (const WildOutcome& outcome : outcomes) again += outcome.counters.recomputed;
  CHECK(again > 0);
}

}  // namespace

TEST_CASE("an activation is read through a pointer that was kept from when it was made", "[wild]") {
  check_reads_of_activations(
      [](const Tensor& made, const float* pointer) { return sum_of(pointer, made.numel()); });
}

TEST_CASE("an activation is read through const_data_ptr(), storage().data_ptr() and data_ptr()",
          "[wild]") {
  check_reads_of_activations([](const Tensor& made, const float* pointer) {
    CHECK(made.const_data_ptr<float>() == pointer);
    const auto* through_storage = static_cast<const float*>(made.storage().data_ptr().get());
    return sum_of(made.const_data_ptr<float>(), made.numel()) +
           sum_of(through_storage, made.numel()) + sum_of(made.data_ptr<float>(), made.numel());
  });
}

TEST_CASE("an activation is read by a thread that has not joined", "[wild]") {
  check_reads_of_activations([](const Tensor& made, const float* pointer) {
    double all = 0;
    std::thread([&] { all = sum_of(pointer, made.numel()) + made.sum().item<double>(); }).join();
    return all;
  });
}

TEST_CASE("activations are saved in the middle of the step", "[wild]") {
  check_reads_of_activations([](const Tensor& made, const float*) {
    std::stringstream file;
    torch::save(made, file);
    Tensor again;
    torch::load(again, file);
    return sum_of(again.const_data_ptr<float>(), again.numel());
  });
}
