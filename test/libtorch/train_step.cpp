// What a replay may not assume: guards, refusals, and what is left after an exception.

#include <thread>

#include <reprise_test/eager.hpp>
#include <reprise_test/watched.hpp>

#include <reprise/graph/diff.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::replaying;
using namespace reprise::tensors;
using namespace reprise::training;
using namespace reprise::testing;
using torch::Tensor;
using Batch = std::vector<Tensor>;

namespace {

struct Watched {
  std::string notices;
  TrainStepOptions options(std::size_t max_plans = 16) {
    return {.run = {.max_plans = max_plans,
                    .on_notice = [this](const std::string& text) { notices += text + "\n"; }}};
  }
};

struct Net : torch::nn::Module {
  Net()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)))),
        bn(register_module("bn", torch::nn::BatchNorm2d(4))),
        drop(register_module("drop", torch::nn::Dropout(0.3))) {}
  Tensor forward(const Tensor& x) { return drop(bn(conv(x)).relu_()).pow(2).mean(); }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d bn;
  torch::nn::Dropout drop;
};

/// One step of a fresh copy of the net, eagerly, from the same seed.
template <class Run>
void same_as_eager(const std::shared_ptr<Net>& ours, const std::shared_ptr<Net>& eager, Run&& step,
                   const Tensor& x) {
  for (const auto& net : {ours, eager}) net->zero_grad();
  torch::manual_seed(11);
  const Tensor our_loss = step(x);
  const Tensor generator = generator_state();
  torch::manual_seed(11);
  Tensor eager_loss = eager->forward(x);
  if (at::GradMode::is_enabled()) eager_loss.backward();
  CHECK(same_bits(eager_loss.detach(), our_loss));
  CHECK(same_bits(generator, generator_state()));
  for (std::size_t i = 0; i < ours->parameters().size(); ++i)
    CHECK(same_bits(ours->parameters()[i].grad(), eager->parameters()[i].grad()));
  for (std::size_t i = 0; i < ours->buffers().size(); ++i)
    CHECK(same_bits(ours->buffers()[i], eager->buffers()[i]));
}

std::pair<std::shared_ptr<Net>, std::shared_ptr<Net>> two_nets() {
  torch::manual_seed(2);
  auto a = std::make_shared<Net>();
  torch::manual_seed(2);
  auto b = std::make_shared<Net>();
  return {a, b};
}

}  // namespace

TEST_CASE(
    "another shape, layout, mode or thread count is captured anew, and the first plan is kept") {
  auto [ours, eager] = two_nets();
  Replaying step{ours, [net = ours](const Tensor& x) { return net->forward(x); }};
  const auto x = torch::randn({4, 3, 8, 8});
  // clang++ 14
  const auto run = [&, &ours = ours, &eager = eager](const Tensor& input) {
    same_as_eager(ours, eager, step, input);
  };
  run(x);
  run(x);
  CHECK(step.counters().captures == 1);
  run(x.slice(0, 0, 2).contiguous());
  CHECK(step.counters().captures == 2);
  run(x.contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(step.counters().captures == 3);
  for (const auto& net : {ours, eager}) net->eval();
  run(x);
  CHECK(step.counters().captures == 4);
  for (const auto& net : {ours, eager}) net->train();
  {
    const torch::NoGradGuard no_grad;
    run(x);
    run(x);
  }
  CHECK(step.counters().captures == 5);
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  run(x);
  CHECK(step.counters().captures == 6);
  at::set_num_threads(threads);
  run(x);
  for (const auto& net : {ours, eager}) net->to(torch::kDouble);
  run(x.to(torch::kDouble));
  CHECK(step.counters().captures == 7);
  CHECK(step.counters().replays == 3);
  CHECK(step.counters().eager_runs == 0);
}

TEST_CASE("a step inside autocast is another one than outside, and each is eager's") {
  torch::manual_seed(3);
  auto p = torch::randn({8, 8}).requires_grad_();
  const auto loss = [&](const Tensor& x) {
    return torch::mm(torch::tanh(torch::mm(x, p)), p).to(torch::kFloat).pow(2).sum();
  };
  Replaying step{std::vector<Tensor>{p}, loss};
  const auto x = torch::randn({4, 8});
  const auto both = [&](bool cast) {
    const auto run = [&](auto&& f) {
      p.mutable_grad() = Tensor();
      at::autocast::set_autocast_enabled(at::kCPU, cast);
      Tensor result = f(x);
      if (result.requires_grad()) result.backward();
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      return std::pair{result.detach(), p.grad()};
    };
    const auto [expected, expected_gradient] = run(loss);
    const auto [ours, gradient] = run(step);
    CHECK(same_bits(ours, expected));
    CHECK(same_bits(gradient, expected_gradient));
    return ours;
  };
  const Tensor plain = both(false), cast = both(true);
  CHECK_FALSE(same_bits(plain, cast));
  both(false);
  both(true);
  CHECK(step.counters().captures == 2);
  CHECK(step.counters().replays == 2);
}

TEST_CASE("the number of plans is bounded") {
  torch::nn::Linear model(4, 4);
  Replaying step{model, [&](const Tensor& x) { return model->forward(x).sum(); },
                 TrainStepOptions{.run = {.max_plans = 2}}};
  for (std::int64_t n : {1, 2, 3, 3, 1}) {
    model->zero_grad();
    step(torch::ones({n, 4}));
  }
  CHECK(step.counters().captures == 4);  // 1 was thrown out by 3
  CHECK(step.counters().replays == 1);
}

TEST_CASE("a host value that changed puts everything back and captures anew") {
  auto [ours, eager] = two_nets();
  const auto loss = [](Net& net, const Tensor& x) {
    // moves statistics and the generator before the guard
    auto h = net.drop(net.bn(net.conv(x)));
    // decided by data, on the host
    const auto rows = (x.select(1, 0).sum() > 0).item<bool>() ? 2 : 3;
    return h.narrow(0, 0, rows).pow(2).mean();
  };
  Replaying step{ours, [net = ours, loss](const Tensor& x) { return loss(*net, x); }};
  for (float sign : {1.f, 1.f, -1.f, -1.f, 1.f}) {
    const auto x = torch::full({4, 3, 8, 8}, sign) + torch::arange(64).view({8, 8}) * 1e-3;
    for (const auto& net : {ours, eager}) net->zero_grad();
    torch::manual_seed(5);
    const Tensor our_loss = step(x);
    const Tensor generator = generator_state();
    torch::manual_seed(5);
    Tensor eager_loss = loss(*eager, x);
    eager_loss.backward();
    CHECK(same_bits(eager_loss.detach(), our_loss));
    CHECK(same_bits(generator, generator_state()));
    for (std::size_t i = 0; i < ours->buffers().size(); ++i)
      CHECK(same_bits(ours->buffers()[i], eager->buffers()[i]));
    for (std::size_t i = 0; i < ours->parameters().size(); ++i)
      CHECK(same_bits(ours->parameters()[i].grad(), eager->parameters()[i].grad()));
  }
  CHECK(step.counters().guard_failures == 2);
  CHECK(step.counters().captures == 3);
  CHECK(step.counters().replays == 2);
}

TEST_CASE("a step whose host value never repeats is left to eager in the end") {
  Watched watched;
  auto p = torch::ones({3, 3}).requires_grad_();
  Replaying step{std::vector<Tensor>{p},
                 [&](const Tensor& x) { return torch::mm(x, p).sum() * x.sum().item<double>(); },
                 watched.options()};
  for (int i = 0; i < 8; ++i) {
    p.mutable_grad() = Tensor();
    const auto x = torch::full({3, 3}, static_cast<double>(i));
    const auto loss = step(x.to(torch::kFloat));
    CHECK(loss.item<double>() == static_cast<double>(9 * i * 3) * static_cast<double>(9 * i));
  }
  CHECK(step.counters().eager_runs > 0);
  CHECK(watched.notices.find("_local_scalar_dense") != std::string::npos);
}

TEST_CASE("a shape that data decides is a guard too") {
  auto p = torch::ones({4}).requires_grad_();
  Replaying step{std::vector<Tensor>{p},
                 [&](const Tensor& x) { return (p.index({x > 0}) * 2).sum(); }};
  const auto run = [&](std::vector<float> values) {
    p.mutable_grad() = Tensor();
    const auto x = torch::tensor(values);
    CHECK(step(x).item<float>() == 2.f * (x > 0).sum().item<float>());
    CHECK(same_bits(p.grad(), (x > 0).to(torch::kFloat) * 2));
  };
  run({1, 1, -1, -1});
  run({1, -1, 1, -1});
  CHECK(step.counters().replays == 1);
  run({1, 1, 1, -1});
  CHECK(step.counters().guard_failures == 1);
  CHECK(step.counters().captures == 2);
}

TEST_CASE("two captures of a step with host state differ at the node that it reaches") {
  auto p = torch::ones({3}).requires_grad_();
  int calls = 0;
  const auto loss = [&](const Tensor& x) { return ((p * x) * static_cast<double>(++calls)).sum(); };
  const auto x = torch::ones({3});
  const auto first = capture(std::vector<Tensor>{p}, loss, x);
  p.mutable_grad() = Tensor();
  const auto second = capture(std::vector<Tensor>{p}, loss, x);
  const auto difference = diff(first.graph(), second.graph());
  REQUIRE(difference.has_value());
  CHECK(difference->node == NodeId{1});
  CHECK(difference->message.find("\"other\":1.0") != std::string::npos);
  CHECK(difference->message.find("\"other\":2.0") != std::string::npos);
  calls = 0;
  p.mutable_grad() = Tensor();
  CHECK_FALSE(diff(first.graph(), capture(std::vector<Tensor>{p}, loss, x).graph()).has_value());
}

TEST_CASE(
    "a pointer taken to an activation in the step: eagerly, with a notice that names the op") {
  if constexpr (!can_watch_host<>) return;
  Watched watched;
  auto p = torch::ones({3, 3}).requires_grad_();
  Replaying step{std::vector<Tensor>{p},
                 [&](const Tensor& x) {
                   auto h = torch::mm(x, p);
                   const auto values = h.detach();
                   const float first = values.accessor<float, 2>()[0][0];
                   return h.sum() * first;
                 },
                 watched.options()};
  for (int i = 1; i < 4; ++i) {
    p.mutable_grad() = Tensor();
    CHECK(step(torch::full({3, 3}, static_cast<float>(i))).item<float>() ==
          static_cast<float>(27 * i * 3 * i));
  }
  CHECK(step.counters().captures == 1);
  CHECK(step.counters().eager_runs == 2);
  CHECK(watched.notices.find("took a pointer") != std::string::npos);
  CHECK(watched.notices.find("aten::mm") != std::string::npos);
  CHECK_THROWS_AS(step.graph(), Error);
}

TEST_CASE(
    "without LibTorch's word a copy that the host fills in the step is found, and the step runs "
    "eagerly") {
  const AsOlderLibTorch older;
  Watched watched;
  auto p = torch::ones({3, 3}).requires_grad_();
  float filled = 0;
  Replaying step{std::vector<Tensor>{p},
                 [&](const Tensor& x) {
                   auto mask = torch::zeros_like(x);
                   mask.data_ptr<float>()[4] = ++filled;
                   return (torch::mm(x, p) * mask).sum();
                 },
                 watched.options()};
  for (int i = 1; i < 5; ++i) {
    p.mutable_grad() = Tensor();
    CHECK(step(torch::ones({3, 3})).item<float>() == static_cast<float>(3 * i));
    CHECK(p.grad()[0][1].item<float>() == static_cast<float>(i));
  }
  CHECK(step.counters().replays == 0);
  CHECK(watched.notices.find("aten::zeros_like") != std::string::npos);
}

TEST_CASE(
    "without LibTorch's word what the host reads through a pointer is host state, which the next "
    "recheck finds") {
  const AsOlderLibTorch older;
  Watched watched;
  auto p = torch::ones({3, 3}).requires_grad_();
  TrainStep step{std::vector<Tensor>{p},
                 [&](const Tensor& x) {
                   auto h = torch::mm(x, p);
                   const auto values = h.detach();
                   return h.sum() * values.accessor<float, 2>()[0][0];
                 },
                 watched.options()};
  for (int i = 1; i < 4; ++i) {  // the second call is a recheck: its own result is used
    p.mutable_grad() = Tensor();
    CHECK(step(torch::full({3, 3}, static_cast<float>(i))).item<float>() ==
          static_cast<float>(27 * i * 3 * i));
  }
  CHECK(step.counters().replays == 0);
  CHECK(watched.notices.find("from now on this step runs without its graph") != std::string::npos);
}

TEST_CASE("capture says what it cannot run again") {
  if constexpr (!can_watch_host<>) return;
  auto p = torch::ones({3, 3}).requires_grad_();
  const auto x = torch::ones({3, 3});
  const auto reads_input = [&](const Tensor& in) {
    return torch::mm(in, p).sum() * in.accessor<float, 2>()[0][0];
  };
  try {
    static_cast<void>(capture(std::vector<Tensor>{p}, reads_input, x));
    FAIL("capture should have refused");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::capture_failed);
    CHECK(std::string(e.what()).find("'input.0'") != std::string::npos);
  }
  CHECK(p.grad().defined());  // the step itself was carried out
}

TEST_CASE("a tensor that the user's code keeps cannot come from a replay") {
  Watched watched;
  auto p = torch::ones({3, 3}).requires_grad_();
  Tensor kept;
  Replaying step{std::vector<Tensor>{p},
                 [&](const Tensor& x) {
                   auto h = torch::mm(x, p);
                   kept = h.detach();
                   return h.sum();
                 },
                 watched.options()};
  for (int i = 1; i < 4; ++i) {
    p.mutable_grad() = Tensor();
    step(torch::full({3, 3}, static_cast<float>(i)));
    CHECK(kept[0][0].item<float>() == static_cast<float>(3 * i));  // not that of an older step
  }
  CHECK(step.counters().eager_runs == 2);
  CHECK(watched.notices.find("return it from the loss function") != std::string::npos);
}

TEST_CASE(
    "a closure's tensor that is exchanged for another one, which lives on, is not the one that was "
    "captured") {
  Watched watched;
  auto p = torch::ones({3}).requires_grad_();
  const auto all = torch::arange(12, torch::kFloat).view({4, 3});
  for (const bool slices : {false, true}) {
    const std::vector<Tensor> batches{slices ? all[0] : torch::full({3}, 1.f),
                                      slices ? all[1] : torch::full({3}, 2.f)};
    Tensor x;
    TrainStep step{std::vector<Tensor>{p}, [&] { return (p * x).sum(); }, watched.options()};
    for (int i = 0; i < 8; ++i) {
      x = batches[static_cast<std::size_t>(i % 2)];
      p.mutable_grad() = Tensor();
      CHECK(step().item<float>() == x.sum().item<float>());
      CHECK(torch::equal(p.grad(), x));
    }
    CHECK(step.counters().replays == 0);
    CHECK(watched.notices.find("reads another tensor in the place of 'captured.0'") !=
          std::string::npos);
    watched.notices.clear();
  }
}

TEST_CASE("a step that is called inside another one is an error, also when it would be replayed") {
  auto p = torch::ones({3}).requires_grad_(), q = torch::ones({3}).requires_grad_();
  Replaying inner{std::vector<Tensor>{q}, [&](const Tensor& x) { return (q * x).sum(); }};
  for (int i = 0; i < 5; ++i) inner(torch::ones({3}));
  REQUIRE(inner.counters().replays > 0);
  Replaying outer{std::vector<Tensor>{p}, [&](const Tensor& x) {
                    static_cast<void>(inner(x));
                    return (p * x).sum();
                  }};
  CHECK_THROWS_AS(outer(torch::ones({3})), Error);
}

TEST_CASE("an empty part of a batch, and the rest of it") {
  auto p = torch::ones({3}).requires_grad_();
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& labelled, const Tensor& rest) {
                   return (p * rest).sum() + labelled.sum();
                 }};
  const auto run = [&](const Tensor& labelled, const Tensor& rest) {
    p.mutable_grad() = Tensor();
    CHECK(step(labelled, rest).item<float>() == rest.sum().item<float>());
    CHECK(torch::equal(p.grad(), rest.sum(0)));
  };
  const auto whole = torch::arange(12, torch::kFloat).view({4, 3});
  for (int i = 0; i < 6; ++i) run(whole.narrow(0, 0, 0), whole);
  for (int i = 0; i < 6; ++i) run(torch::empty({0, 3}), whole + i);  // not of one storage any more
}

TEST_CASE("batch norm with statistics that are made in the step, computed again") {
  const auto loss = [](const std::vector<Tensor>& weights, const Tensor& x) {
    Tensor h = x;
    for (const Tensor& w : weights) {
      h = torch::mm(h, w);
      h = torch::batch_norm(h, {}, {}, torch::zeros({32}), torch::ones({32}), true, 0.1, 1e-5,
                            false);
      h = torch::tanh(h);
    }
    return h.pow(2).sum();
  };
  torch::manual_seed(5);
  std::vector<Tensor> weights;
  for (int i = 0; i < 8; ++i) weights.push_back(torch::randn({32, 32}).requires_grad_());
  const Tensor x = torch::randn({64, 32});
  loss(weights, x).backward();
  std::vector<Tensor> expected;
  for (Tensor& w : weights) expected.push_back(w.grad().clone());
  TrainStepOptions options{.budget = Budget::savable(45),
                           .run = {.planning = {.effort = 0.3}},
                           .on_fallback = OnFallback::error};
  // tanh is dear: what is computed again goes through batch norm
  options.run.planner = [](const StepGraph& graph, const PlanRequest& request) {
    StepGraph priced = graph;
    for (std::size_t i = 0; i < graph.node_count(); ++i)
      priced.set_time(NodeId{i},
                      {graph.node(NodeId{i}).op.find("tanh") != std::string::npos ? 1000.0 : 1.0});
    return plan_with("anneal", priced, request);
  };
  Replaying step{weights, [&](const Tensor& in) { return loss(weights, in); }, options};
  for (int i = 0; i < 4; ++i) {
    for (Tensor& w : weights) w.mutable_grad() = Tensor();
    step(x);
    for (std::size_t k = 0; k < weights.size(); ++k)
      CHECK(torch::equal(weights[k].grad(), expected[k]));
  }
  const auto counts = run_counts(step.graph(), step.plan().schedule);
  int norms = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (step.graph().node(NodeId{i}).op.find("batch_norm") != std::string::npos && counts[i] > 1)
      ++norms;
  CHECK(norms > 0);
}

TEST_CASE("sparse gradients run eagerly, with a notice") {
  Watched watched;
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  Replaying step{table, [&](const Tensor& ids) { return table->forward(ids).sum(); },
                 watched.options()};
  for (int i = 0; i < 3; ++i) {
    table->zero_grad();
    step(torch::tensor({1, 2, 2}));
    CHECK(table->weight.grad().is_sparse());
  }
  CHECK(step.counters().eager_runs == 2);
  CHECK(watched.notices.find("not plain strided memory") != std::string::npos);
}

TEST_CASE("a tensor from outside that was replaced is noticed") {
  auto p = torch::ones({3}).requires_grad_();
  Tensor scale = torch::full({3}, 2.f);
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x * scale).sum(); }};
  const auto run = [&] {
    p.mutable_grad() = Tensor();
    return step(torch::ones({3})).item<float>();
  };
  CHECK(run() == 6);
  CHECK(run() == 6);
  scale.mul_(2);  // the same tensor with other contents
  CHECK(run() == 12);
  CHECK(step.counters().replays == 2);
  scale = torch::full({3}, 5.f);  // another tensor
  CHECK(run() == 15);
  CHECK(step.counters().captures == 2);
}

TEST_CASE("a parameter whose data was replaced is read where it is now") {
  torch::nn::Linear model(3, 1);
  Replaying step{model, [&](const Tensor& x) { return model->forward(x).sum(); }};
  for (int i = 1; i < 5; ++i) {
    model->zero_grad();
    model->weight.set_data(torch::full({1, 3}, static_cast<float>(i)));
    model->bias.set_data(torch::zeros({1}));
    CHECK(step(torch::ones({1, 3})).item<float>() == static_cast<float>(3 * i));
  }
  CHECK(step.counters().replays == 3);
}

TEST_CASE("a module that was exchanged for another is noticed") {
  struct Outer : torch::nn::Module {
    Outer() : head(register_module("head", torch::nn::Linear(3, 1))) {}
    torch::nn::Linear head;
  };
  auto net = std::make_shared<Outer>();
  Replaying step{net, [net](const Tensor& x) { return net->head->forward(x).sum(); }};
  step(torch::ones({1, 3}));
  net->head = net->replace_module("head", torch::nn::Linear(3, 1));
  const auto x = torch::ones({1, 3});
  CHECK(same_bits(step(x), net->head->forward(x).sum().detach()));
  CHECK(net->head->weight.grad().defined());
}

TEST_CASE("two arguments over one storage are another step than two arguments") {
  auto p = torch::ones({4}).requires_grad_();
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& a, const Tensor& b) {
                   // writes into the caller's tensor, and into b where they share
                   a.detach().add_(1);
                   return (p * b).sum();
                 }};
  const auto run = [&](const Tensor& a, const Tensor& b) {
    p.mutable_grad() = Tensor();
    return step(a, b).item<float>();
  };
  auto whole = torch::zeros({4});
  CHECK(run(whole, torch::zeros({4})) == 0);
  CHECK(run(whole, torch::zeros({4})) == 0);
  CHECK(run(whole, whole) == 12);
  CHECK(run(whole, whole) == 16);
  CHECK(step.counters().captures == 2);
}

TEST_CASE("batches may be slices of one large tensor, each elsewhere in it") {
  auto p = torch::ones({4}).requires_grad_();
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x, const Tensor& y) {
                   auto flat = x.view({-1});
                   return (p * x).sum() - (p * y).sum() * 2 + flat.narrow(0, 0, 2).sum() * p.sum();
                 }};
  const auto all = torch::arange(64, torch::kFloat).view({16, 4});
  for (std::int64_t i = 0; i < 5; ++i) {
    p.mutable_grad() = Tensor();
    // the same storage, the same distance
    const auto x = all.narrow(0, 2 * i, 2), y = all.narrow(0, 2 * i + 4, 2);
    const Tensor expected = (x.sum() - y.sum() * 2 + x.flatten().narrow(0, 0, 2).sum() * 4);
    CHECK(step(x, y).item<float>() == expected.item<float>());
    CHECK(same_bits(p.grad(), x.sum(0) - 2 * y.sum(0) + x.flatten().narrow(0, 0, 2).sum()));
  }
  CHECK(step.counters().replays == 4);
}

TEST_CASE("a generator of the user's own: eagerly, with a notice") {
  Watched watched;
  auto p = torch::ones({8}).requires_grad_();
  Replaying step{std::vector<Tensor>{p},
                 [&](const Tensor& x) {
                   // the same numbers in every step
                   auto mine = at::detail::createCPUGenerator(42);
                   return (p * x * torch::rand({8}, mine)).sum();
                 },
                 watched.options()};
  std::vector<float> losses;
  for (int i = 0; i < 3; ++i) {
    p.mutable_grad() = Tensor();
    losses.push_back(step(torch::ones({8})).item<float>());
  }
  CHECK(losses[1] == losses[0]);
  CHECK(losses[2] == losses[0]);
  CHECK(step.counters().eager_runs == 2);
  CHECK(watched.notices.find("generator of the user's own") != std::string::npos);
}

TEST_CASE("a workspace that differs from the one known is counted, and the prediction follows") {
  torch::manual_seed(1);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3));
  const auto x = torch::randn({2, 3, 16, 16});
  auto captured = capture(
      conv, [&](const Tensor& in) { return conv->forward(in).sum(); }, x);
  // as if another kernel had been chosen
  captured.graph().set_workspace(NodeId{0}, Bytes{1 << 20});
  LibTorchProgram program(captured, own_order(captured.graph()));
  const Bytes wrong = program.peak_above_base();
  conv->zero_grad();
  const ModelTensors model = tensors_of(conv);
  const std::vector<Tensor> inputs{x};
  const auto run = [&] {
    const Bytes base = device_memory().live();
    device_memory().reset_peak();
    const RunOutcome outcome =
        program.run({model.parameters, model.buffers, inputs, model.parameters});
    CHECK(outcome.completed);
    return std::pair{outcome.workspace_changes, device_memory().peak() - base};
  };
  const auto [changes, peak] = run();
  CHECK(changes == 1);
  CHECK(peak == program.peak_above_base());
  CHECK(peak < wrong);
  CHECK(run().first == 0);
}

TEST_CASE("an exception in the loss function passes through, and the next step works") {
  torch::nn::Linear model(3, 3);
  bool fail = true;
  Replaying step{model, [&](const Tensor& x) {
                   auto h = model->forward(x);
                   if (fail) throw std::runtime_error("the user's own");
                   return h.sum();
                 }};
  const auto x = torch::ones({2, 3});
  const Bytes before = device_memory().live();
  CHECK_THROWS_WITH(step(x), "the user's own");
  CHECK(device_memory().live() == before);
  fail = false;
  step(x);
  model->zero_grad();
  step(x);
  CHECK(step.counters().replays == 1);
}

TEST_CASE("a loss that cannot be differentiated gives eager's own error") {
  auto p = torch::ones({3});
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x).sum(); }};
  CHECK_THROWS_AS(step(torch::ones({3})), c10::Error);
}

TEST_CASE("what a step returns does not change when the next one runs") {
  auto p = torch::ones({3}).requires_grad_();
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x).sum(); }};
  std::vector<Tensor> losses, gradients;
  for (int i = 0; i < 4; ++i) {
    p.mutable_grad() = Tensor();
    losses.push_back(step(torch::full({3}, static_cast<float>(i))));
    gradients.push_back(p.grad());
  }
  for (int i = 0; i < 4; ++i) {
    CHECK(losses[static_cast<std::size_t>(i)].item<float>() == static_cast<float>(3 * i));
    CHECK(gradients[static_cast<std::size_t>(i)][0].item<float>() == static_cast<float>(i));
  }
}

TEST_CASE("writes of a replay count as writes for autograd") {
  torch::nn::BatchNorm1d bn(3);
  Replaying step{bn, [&](const Tensor& x) { return bn->forward(x).pow(2).sum(); }};
  const auto x = torch::randn({4, 3});
  step(x);
  bn->zero_grad();
  const auto before = bn->running_mean._version();
  step(x);
  CHECK(step.counters().replays == 1);
  CHECK(bn->running_mean._version() > before);
}

// ── what the recorder must not mistake for something else ────────────────────────────────────────

TEST_CASE("calls 2, 3, 4, 8, 16 are run under the recorder and compared with the graph") {
  auto p = torch::ones({3}).requires_grad_();
  TrainStep step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x).sum(); }};
  for (int i = 0; i < 20; ++i) {
    p.mutable_grad() = Tensor();
    CHECK(step(torch::full({3}, static_cast<float>(i))).item<float>() == static_cast<float>(3 * i));
  }
  CHECK(step.counters().captures == 1);
  CHECK(step.counters().rechecks == 5);
  CHECK(step.counters().replays == 14);
}

TEST_CASE("host state is found out by a recheck, and the step is right all the time") {
  Watched watched;
  auto p = torch::ones({3}).requires_grad_();
  int calls = 0;
  TrainStep step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x).sum() * ++calls; },
                 watched.options()};
  for (int i = 1; i <= 5; ++i) {
    p.mutable_grad() = Tensor();
    CHECK(step(torch::ones({3})).item<float>() == static_cast<float>(3 * i));
  }
  CHECK(step.counters().eager_runs == 3);
  CHECK(watched.notices.find("call 2 is not the step that was captured") != std::string::npos);
}

TEST_CASE("a closure's tensor that was the first batch is not the batch") {
  auto p = torch::ones({3}).requires_grad_();
  const auto first = torch::ones({3});
  TrainStep step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x - first).sum(); }};
  CHECK(step(first).item<float>() == 0);
  for (int i = 2; i < 5; ++i) {
    p.mutable_grad() = Tensor();
    CHECK(step(torch::full({3}, static_cast<float>(i))).item<float>() ==
          static_cast<float>(3 * i - 3));
  }
}

TEST_CASE(
    "batches that share memory with a buffer, a parameter, a gradient or a closure's tensor") {
  struct Data : torch::nn::Module {
    Data()
        : data(register_buffer("data", torch::arange(24, torch::kFloat).view({8, 3}))),
          p(register_parameter("p", torch::ones({3}))) {}
    Tensor data, p;
  };
  auto net = std::make_shared<Data>();
  Replaying from_buffer{net, [net](const Tensor& x) { return (net->p * x).sum(); }};
  Replaying with_mean{
      net, [net](const Tensor& x) { return (net->p * (x - net->data.detach().mean(0))).sum(); }};
  for (std::int64_t i = 0; i < 3; ++i) {
    net->zero_grad();
    const auto x = net->data.narrow(0, 2 * i, 2);
    CHECK(from_buffer(x).item<float>() == x.sum().item<float>());
    net->zero_grad();
    CHECK(with_mean(x).item<float>() == (x - net->data.mean(0)).sum().item<float>());
  }
  const auto whole = torch::arange(24, torch::kFloat).view({8, 3});  // not the model's: a closure's
  Replaying from_closure{
      net, [net, whole](const Tensor& x) { return (net->p * (x - whole.mean(0))).sum(); }};
  for (std::int64_t i = 0; i < 3; ++i) {
    net->zero_grad();
    const auto x = whole.narrow(0, 2 * i, 2);
    CHECK(from_closure(x).item<float>() == (x - whole.mean(0)).sum().item<float>());
  }
  net->zero_grad();
  Replaying from_parameter{net, [net](const Tensor& x) { return (net->p * x).sum(); }};
  CHECK(from_parameter(net->p.detach()).item<float>() == 3);
  net->zero_grad();
  CHECK(from_parameter(torch::full({3}, 2.f)).item<float>() == 6);
}

TEST_CASE("gradients that lie in one buffer, and later do not") {
  auto a = torch::ones({6}).requires_grad_(), b = torch::ones({6}).requires_grad_();
  Replaying step{std::vector<Tensor>{a, b},
                 [&](const Tensor& x) { return (a * x).sum() + (b * x).sum() * 2; }};
  const auto x = torch::ones({6});
  auto flat = torch::zeros({12});
  a.mutable_grad() = flat.narrow(0, 0, 6);
  b.mutable_grad() = flat.narrow(0, 6, 6);
  step(x);
  step(x);
  CHECK(flat.sum().item<float>() == 2 * (6 + 12));
  a.mutable_grad() = torch::zeros({6});
  b.mutable_grad() = torch::zeros({6});
  step(x);
  CHECK(a.grad().sum().item<float>() == 6);
  CHECK(b.grad().sum().item<float>() == 12);
}

TEST_CASE("what the step adds to a closure's tensor in place is added once a step") {
  auto p = torch::ones({3}).requires_grad_();
  auto total = torch::zeros({});
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x) {
                   auto loss = (p * x).sum();
                   total += loss.detach();
                   return loss;
                 }};
  for (int i = 1; i < 5; ++i) {
    p.mutable_grad() = Tensor();
    step(torch::ones({3}));
    CHECK(total.item<float>() == static_cast<float>(3 * i));
  }
  CHECK(step.counters().replays == 3);
}

TEST_CASE(
    "hooks on a parameter, exchanged modules, modules that join later, and switches are noticed") {
  auto p = torch::ones({3}).requires_grad_();
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x).sum(); }};
  step(torch::ones({3}));
  p.register_hook([](const Tensor& g) { return g * 2; });
  p.mutable_grad() = Tensor();
  step(torch::ones({3}));
  CHECK(p.grad().sum().item<float>() == 6);

  torch::nn::Sequential net(torch::nn::Linear(4, 4));
  Replaying growing{net, [&](const Tensor& x) { return net->forward(x).sum(); }};
  const auto x = torch::ones({2, 4});
  growing(x);
  net->push_back(torch::nn::Dropout(0.9));
  for (const bool train : {true, false}) {
    net->ptr(1)->train(train);
    net->zero_grad();
    torch::manual_seed(1);
    const Tensor ours = growing(x);
    torch::manual_seed(1);
    CHECK(same_bits(ours, net->forward(x).sum().detach()));
  }
}

TEST_CASE("a generator that is set in the middle of the step: eagerly") {
  Watched watched;
  auto p = torch::ones({64}).requires_grad_();
  Replaying step{std::vector<Tensor>{p},
                 [&](const Tensor& x) {
                   torch::manual_seed(3);
                   return torch::dropout(p * x, 0.5, true).sum();
                 },
                 watched.options()};
  std::vector<float> losses;
  for (int i = 0; i < 3; ++i) {
    p.mutable_grad() = Tensor();
    losses.push_back(step(torch::ones({64})).item<float>());
  }
  CHECK(losses[1] == losses[0]);
  CHECK(losses[2] == losses[0]);
  CHECK(watched.notices.find("the generator was set") != std::string::npos);
}

TEST_CASE("lengths that LibTorch reads behind the dispatcher: eagerly") {
  auto p = torch::ones({5}).requires_grad_();
  Replaying step{std::vector<Tensor>{p}, [&](const Batch& b) {
                   return torch::ctc_loss((b[0] * p).log_softmax(2), b[1], b[2], b[3]);
                 }};
  torch::manual_seed(4);
  const auto logits = torch::randn({6, 2, 5});
  const auto targets = torch::tensor({1, 2, 3, 1, 2, 3}).view({2, 3});
  for (const std::int64_t n : {3, 2, 1}) {
    p.mutable_grad() = Tensor();
    const Batch batch{logits, targets, torch::tensor({6, 5}), torch::tensor({n, std::int64_t{1}})};
    CHECK(same_bits(
        step(batch),
        torch::ctc_loss((logits * p).log_softmax(2), targets, batch[2], batch[3]).detach()));
  }
}

TEST_CASE("a .grad that is taken away in the step is gone afterwards") {
  auto a = torch::ones({3}).requires_grad_(), b = torch::ones({3}).requires_grad_();
  Replaying step{std::vector<Tensor>{a, b}, [&](const Tensor& x) {
                   b.mutable_grad() = Tensor();
                   return (a * x).sum();
                 }};
  for (int i = 0; i < 3; ++i) {
    a.mutable_grad() = Tensor();
    b.mutable_grad() = torch::ones({3});
    step(torch::ones({3}));
    CHECK_FALSE(b.grad().defined());
  }
}

TEST_CASE("two threads may capture for the first time at once") {
  std::vector<float> losses(2);
  const auto work = [&](std::size_t k) {
    auto p = torch::full({3}, static_cast<float>(k + 1)).requires_grad_();
    Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x).sum(); }};
    for (int i = 0; i < 3; ++i) {
      p.mutable_grad() = Tensor();
      losses[k] = step(torch::ones({3})).item<float>();
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  CHECK(losses == std::vector<float>{3, 6});
}

TEST_CASE("results that are no loss, or no new tensor") {
  auto p = torch::ones({3}).requires_grad_();
  Replaying no_loss{std::vector<Tensor>{p}, [&](const Tensor&) { return Tensor(); }};
  CHECK_THROWS_AS(no_loss(torch::ones({3})), Error);
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x) {
                   return std::tuple{(p * x).sum(), p};
                 }};
  for (int i = 0; i < 2; ++i) {
    p.mutable_grad() = Tensor();
    const auto [loss, same] = step(torch::ones({3}));
    CHECK_FALSE(same.requires_grad());
    CHECK(same.is_alias_of(p));
  }
}
