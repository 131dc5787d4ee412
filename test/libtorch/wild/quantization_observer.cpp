// A loss that watches ranges as quantization-aware training does: buffers are moved in place, and
// what an op needs besides its results depends on the data. Inside the budget, or a notice.

#include <reprise_test/guided.hpp>

using namespace reprise;
using namespace reprise::replaying;
using namespace reprise::training;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

struct Observer : torch::nn::Module {
  Tensor on = register_buffer("on", torch::ones({1}, torch::kLong)),
         minimum = register_buffer("minimum", torch::zeros({1})),
         maximum = register_buffer("maximum", torch::zeros({1})),
         scale = register_buffer("scale", torch::ones({1})),
         zero_point = register_buffer("zero_point", torch::zeros({1}, torch::kInt));
};

/// LibTorch's own op, which observes and quantizes in one.
Tensor fused(Observer& o, const Tensor& x) {
  return at::fused_moving_avg_obs_fake_quant(x, o.on, o.on, o.minimum, o.maximum, o.scale,
                                             o.zero_point, 0.01, 0, 255, 0);
}

/// The same by hand: the host reads the range, and it is another one in every step.
Tensor by_hand(Observer& o, const Tensor& x) {
  {
    const torch::NoGradGuard no_grad;
    const auto [low, high] = at::aminmax(x.detach());
    o.minimum.copy_(torch::min(o.minimum, low.view({1})));
    o.maximum.copy_(torch::max(o.maximum, high.view({1})));
    o.scale.copy_((o.maximum - o.minimum) / 255);
  }
  return at::fake_quantize_per_tensor_affine(x, o.scale.item<double>() + 1e-6, 0, -128, 127);
}

/// As by_hand, with the scale left in a tensor.
Tensor by_tensors(Observer& o, const Tensor& x) {
  {
    const torch::NoGradGuard no_grad;
    const auto [low, high] = at::_aminmax(x.detach());
    o.minimum.lerp_(low.view({1}), 0.1);
    o.maximum.lerp_(high.view({1}), 0.1);
    o.scale.copy_((o.maximum - o.minimum) / 255 + 1e-6);
  }
  return at::fake_quantize_per_tensor_affine(x, o.scale, o.zero_point, -128, 127);
}

struct Net : torch::nn::Module {
  explicit Net(Tensor (*how)(Observer&, const Tensor&)) : quantize(how) {
    torch::manual_seed(3);
    for (int i = 0; i < 6; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(64, 64)));
      observers.push_back(
          register_module("observer" + std::to_string(i), std::make_shared<Observer>()));
    }
  }
  Tensor forward(const Tensor& x) {
    Tensor h = x;
    for (std::size_t i = 0; i < layers.size(); ++i)
      h = torch::gelu(quantize(*observers[i], layers[i](h)));
    return h.pow(2).mean();
  }
  Tensor (*quantize)(Observer&, const Tensor&);
  std::vector<torch::nn::Linear> layers;
  std::vector<std::shared_ptr<Observer>> observers;
};

struct Run {
  std::vector<TrainStepReport> steps{};
  TrainStepCounters counters{};
  std::string notices{};
};

/// Some steps inside a share of what can be saved, compared with eager. `before_step` is called for
/// both nets.
Run check_inside(Tensor (*how)(Observer&, const Tensor&), double share,
                 const std::function<void(Net&, int)>& before_step = {}) {
  const auto eager = std::make_shared<Net>(how), ours = std::make_shared<Net>(how);
  Run run;
  Replaying step{ours, [ours](const Tensor& x) { return ours->forward(x); },
                 TrainStepOptions{.budget = Budget::savable(share),
                                  .run = {.planner = plan_by_bytes,
                                          .planning = {.effort = 0.1},
                                          .refine = false,
                                          .on_notice = [&](const std::string& text) {
                                            run.notices += text + "\n";
                                          }}}};
  for (int i = 0; i < 6; ++i) {
    for (const auto& net : {eager, ours}) {
      net->zero_grad();
      if (before_step) before_step(*net, i);
    }
    const Tensor x =
        torch::full({256, 64}, 1.f + 0.5f * static_cast<float>(i)) * torch::linspace(-1, 1, 64);
    Tensor expected = eager->forward(x);
    expected.backward();
    expected = expected.detach();
    const std::size_t said = run.notices.size();
    const Tensor loss = step(x);
    const TrainStepReport& last = step.last();
    INFO("step " << i << ", " << share << " %: held " << last.reserved_peak.count << ", budget "
                 << last.budget.count << ", limit " << last.limit.count << "; "
                 << run.notices.substr(said));
    CHECK(same_bits(loss, expected));
    const std::vector<Tensor> a = eager->parameters(), b = ours->parameters(), c = eager->buffers(),
                              d = ours->buffers();
    for (std::size_t k = 0; k < a.size(); ++k) CHECK(same_bits(a[k].grad(), b[k].grad()));
    for (std::size_t k = 0; k < c.size(); ++k) CHECK(same_bits(c[k], d[k]));
    CHECK(last.over_budget == (last.reserved_peak > (last.limit > 0_B ? last.limit : last.budget)));
    CHECK(last.over_budget ==
          (run.notices.find("went above its budget", said) != std::string::npos));
    run.steps.push_back(last);
  }
  run.counters = step.counters();
  return run;
}

}  // namespace

TEST_CASE("a quantization observer in the loss: inside the budget", "[wild]") {
  for (const double share : {70., 10.}) {
    for (const auto how : {&fused, &by_hand, &by_tensors}) {
      const Run run = check_inside(how, share);
      for (const TrainStepReport& step : run.steps) CHECK_FALSE(step.over_budget);
    }
  }
}

TEST_CASE("an observer that is switched on after the capture takes workspace that nobody knew of",
          "[wild]") {
  constexpr int on_at = 3;
  int over = 0;
  for (const double share : {100., 80.}) {
    const Run run = check_inside(&fused, share, [](Net& net, int i) {
      // by data: the step is the same one
      for (const auto& observer : net.observers) observer->on.fill_(i >= on_at ? 1 : 0);
    });
    CHECK(run.counters.workspace_changes > 0);
    over += run.steps[on_at].over_budget ? 1 : 0;
    for (std::size_t i = 0; i < run.steps.size(); ++i)
      if (i != on_at) CHECK_FALSE(run.steps[i].over_budget);
  }
  CHECK(over > 0);
}
