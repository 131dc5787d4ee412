// Between two calls of a TrainStep something is exchanged that the loss function reads through the
// model: a parameter, a buffer, an option, a mode. The call after that is eager's already, and the
// way back finds the first capture again.

#include <reprise_test/eager.hpp>

using namespace reprise;
using namespace reprise::training;
using namespace reprise::testing;
using torch::Tensor;

namespace {

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(6, 6))),
        norm(register_module("norm", torch::nn::BatchNorm1d(6))),
        slope(register_module("slope", torch::nn::LeakyReLU())),
        drop(register_module("drop", torch::nn::Dropout(0.5))),
        second(register_module("second", torch::nn::Linear(6, 6))),
        scale(register_buffer("scale", torch::full({6}, 1.5))) {}
  Tensor forward(const Tensor& x) {
    return second(drop(slope(norm(first(x))))).mul(scale).pow(2).mean();
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::LeakyReLU slope;
  torch::nn::Dropout drop;
  torch::nn::Linear second;
  Tensor scale;
};

/// Two nets that go the same way, one of them through a TrainStep.
struct Pair {
  std::shared_ptr<Net> eager = make(), ours = make();
  Replaying<std::function<Tensor(const Tensor&)>> step{
      ours, std::function([net = ours](const Tensor& in) { return net->forward(in); })};
  Tensor x = torch::randn({8, 6});

  static std::shared_ptr<Net> make() {
    torch::manual_seed(3);
    return std::make_shared<Net>();
  }
  void both(const std::function<void(Net&)>& change) {
    change(*eager);
    change(*ours);
  }
  void check() {
    both([](Net& net) { net.zero_grad(); });
    torch::manual_seed(5);
    Tensor expected = eager->forward(x);
    expected.backward();
    const Tensor generator = generator_state();
    torch::manual_seed(5);
    const Tensor loss = step(x);
    CHECK(same_bits(loss, expected.detach()));
    CHECK(same_bits(generator, generator_state()));
    const std::vector<Tensor> a = eager->parameters(), b = ours->parameters(), c = eager->buffers(),
                              d = ours->buffers();
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(same_bits(a[i].grad(), b[i].grad()));
    for (std::size_t i = 0; i < c.size(); ++i) CHECK(same_bits(c[i], d[i]));
  }
  /// Equal before, at once after the change, and back; with one capture more.
  void goes_there_and_back(const std::function<void(Net&)>& there,
                           const std::function<void(Net&)>& back) {
    for (int i = 0; i < 2; ++i) check();
    const std::int64_t captures = step.counters().captures;
    both(there);
    for (int i = 0; i < 2; ++i) check();
    CHECK(step.counters().captures == captures + 1);
    both(back);
    check();
    CHECK(step.last().replayed);
    CHECK(step.counters().captures == captures + 1);
    CHECK(step.counters().eager_runs == 0);
  }
};

}  // namespace

TEST_CASE("options of a module that change between steps", "[wild]") {
  Pair pair;
  pair.goes_there_and_back([](Net& n) { n.drop->options.p(0.1); },
                           [](Net& n) { n.drop->options.p(0.5); });
  pair.goes_there_and_back([](Net& n) { n.norm->options.momentum(0.5); },
                           [](Net& n) { n.norm->options.momentum(0.1); });
  pair.goes_there_and_back([](Net& n) { n.norm->options.eps(0.1); },
                           [](Net& n) { n.norm->options.eps(1e-5); });
  pair.goes_there_and_back([](Net& n) { n.slope->options.negative_slope(0.7); },
                           [](Net& n) { n.slope->options.negative_slope(0.01); });
  pair.goes_there_and_back([](Net& n) { n.drop->eval(); }, [](Net& n) { n.drop->train(); });
}

TEST_CASE("a member tensor that is exchanged for another one, which nobody registers", "[wild]") {
  Pair pair;
  for (int i = 0; i < 2; ++i) pair.check();
  std::vector<Tensor> old;
  pair.both([&](Net& net) {
    old.push_back(net.second->weight);
    net.second->weight = torch::full({6, 6}, 0.25).requires_grad_();
  });
  pair.check();
  CHECK(pair.step.counters().captures == 2);
  pair.check();
  std::size_t k = 0;
  pair.both([&](Net& net) { net.second->weight = old[k++]; });
  pair.check();
  CHECK(pair.step.counters().captures == 2);

  // tied, as it is done in C++
  pair.both([](Net& net) { net.second->weight = net.first->weight; });
  for (int i = 0; i < 2; ++i) pair.check();
  k = 0;
  pair.both([&](Net& net) { net.second->weight = old[k++]; });  // and untied
  pair.check();
  CHECK(pair.step.last().replayed);
}

TEST_CASE("set_data, while the loss function also reads the parameter through a tensor of its own",
          "[wild]") {
  torch::nn::Linear model(3, 1);
  const Tensor before = model->weight.detach();  // the memory that the weight has now
  Replaying step{model,
                 [&](const Tensor& x) { return (model->forward(x) + (before * x).sum()).sum(); }};
  const auto check = [&] {
    model->zero_grad();
    const Tensor x = torch::ones({1, 3});
    const Tensor expected = (model->forward(x) + (before * x).sum()).sum().detach();
    CHECK(same_bits(step(x), expected));
  };
  for (int i = 0; i < 2; ++i) check();
  const Tensor old = model->weight.data();
  model->weight.set_data(torch::full({1, 3}, 7.f));
  for (int i = 0; i < 2; ++i) check();
  const std::int64_t captures = step.counters().captures;
  model->weight.set_data(old);
  check();
  CHECK(step.counters().captures == captures);  // the first one holds again
  CHECK(step.last().replayed);
}

TEST_CASE("a loss function that puts a teacher into eval() itself", "[wild]") {
  struct Both : torch::nn::Module {
    torch::nn::Linear student = register_module("student", torch::nn::Linear(6, 6));
    torch::nn::Sequential teacher = register_module(
        "teacher", torch::nn::Sequential(torch::nn::Linear(6, 6), torch::nn::Dropout(0.5)));
  };
  torch::manual_seed(1);
  const auto net = std::make_shared<Both>();
  const auto loss = [net](const Tensor& x) {
    const bool warm_up = net->teacher->is_training();  // of the first step after train()
    net->teacher->eval();
    const Tensor target = net->teacher->forward(x).detach();
    return (net->student(x) - target).pow(2).mean() * (warm_up ? 2 : 1);
  };
  Replaying step{net, loss};
  const Tensor x = torch::ones({4, 6});
  const auto check = [&](bool training_first) {
    net->train(training_first);
    const float expected = loss(x).item<float>();
    CHECK_FALSE(net->teacher->is_training());
    net->train(training_first);
    net->zero_grad();
    CHECK(step(x).item<float>() == expected);
    CHECK_FALSE(net->teacher->is_training());  // as eager leaves it
  };
  for (const bool training : {true, false, false, true, true, false}) check(training);
  CHECK(step.last().replayed);
}
