// What a step may contain: each kind of op trained eagerly and from its graph, side by side, bit
// for bit.

#include <reprise_test/eager.hpp>
#include <reprise_test/watched.hpp>

using namespace reprise;
using namespace reprise::training;
using namespace reprise::testing;
using torch::Tensor;
using Batch = std::vector<Tensor>;
namespace F = torch::nn::functional;

namespace {

Tensor weight(torch::IntArrayRef sizes) { return torch::randn(sizes).mul_(0.3).requires_grad_(); }

/// A subject with parameters of these shapes and a loss over (parameters, batch).
template <class Loss>
std::function<Subject()> subject(std::vector<std::vector<std::int64_t>> shapes, Loss loss) {
  return [=] {
    Subject s;
    for (const auto& shape : shapes) s.parameters.push_back(weight(shape));
    s.loss = [p = s.parameters, loss](const Batch& batch) mutable { return loss(p, batch); };
    return s;
  };
}

template <class Module, class Loss>
std::function<Subject()> module_subject(std::function<Module()> make, Loss loss) {
  return [=] {
    Module m = make();
    Subject s;
    s.parameters = m->parameters();
    s.buffers = m->buffers();
    s.module = m.ptr();
    s.loss = [m, loss](const Batch& batch) mutable { return loss(m, batch); };
    return s;
  };
}

Tensor data(torch::IntArrayRef sizes, std::uint64_t seed = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn(sizes, generator);
}

}  // namespace

TEST_CASE("in-place ops on activations") {
  replays_like_eager(subject({{8, 8}, {8}},
                             [](auto& p, const Batch& b) {
                               return torch::mm(b[0], p[0]).add_(p[1]).relu_().mul(2).sub_(1).sum();
                             }),
                     {data({4, 8})});
}

TEST_CASE("views and views of views") {
  replays_like_eager(
      subject(
          {{6, 8}},
          [](auto& p, const Batch& b) {
            auto h =
                torch::mm(b[0], p[0]).view({2, 2, 8}).transpose(0, 2).select(1, 0).narrow(0, 2, 4);
            return (h * h.t().contiguous().t()).sum();
          }),
      {data({4, 6})});
}

TEST_CASE("writes through views, and older views read after a write") {
  replays_like_eager(subject({{6, 8}},
                             [](auto& p, const Batch& b) {
                               auto h = torch::mm(b[0], p[0]) * 1.5;
                               auto flat = h.view({-1});
                               h.select(0, 1).mul_(3);
                               h.narrow(1, 2, 3).copy_(b[1]);
                               // made from a view that is older than both writes
                               auto tail = flat.slice(0, 4, 20);
                               return (flat.sigmoid().sum() + tail.tanh().sum());
                             }),
                     {data({4, 6}), data({4, 3})});
}

TEST_CASE("a loop over time with slices written in place") {
  replays_like_eager(subject({{5, 5}},
                             [](auto& p, const Batch& b) {
                               auto out = torch::zeros({6, 3, 5});
                               auto h = b[0];
                               for (std::int64_t t = 0; t < 6; ++t) {
                                 h = torch::tanh(torch::mm(h, p[0]));
                                 out[t].copy_(h);
                               }
                               return out.pow(2).sum();
                             }),
                     {data({3, 5})});
}

TEST_CASE("expand, unsafe views and detach") {
  replays_like_eager(
      subject({{1, 8}, {8, 4}},
              [](auto& p, const Batch& b) {
                auto h = p[0].expand({4, 8}) * b[0];
                // matmul goes through _unsafe_view
                auto y = torch::matmul(h.unsqueeze(0).expand({3, 4, 8}), p[1]);
                return (y * y.detach().sigmoid()).sum() + at::_unsafe_view(y, {12, 4}).cos().mean();
              }),
      {data({4, 8})});
}

TEST_CASE("batch norm moves its statistics once a step") {
  struct Net : torch::nn::Module {
    Net()
        : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)))),
          bn(register_module("bn", torch::nn::BatchNorm2d(4))),
          plain(register_module(
              "plain", torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(4).affine(false)))) {}
    Tensor forward(const Tensor& x) { return plain(bn(conv(x)).relu_()).pow(3).mean(); }
    torch::nn::Conv2d conv;
    torch::nn::BatchNorm2d bn, plain;
  };
  const auto make = [] {
    auto net = std::make_shared<Net>();
    return Subject{net->parameters(), [net](const Batch& b) { return net->forward(b[0]); },
                   net->buffers(), net};
  };
  replays_like_eager(make, {data({4, 3, 8, 8})});
}

TEST_CASE("dropout and other random ops draw what eager draws") {
  replays_like_eager(
      subject(
          {{8, 8}},
          [](auto& p, const Batch& b) {
            auto h = torch::dropout(torch::mm(b[0], p[0]), 0.4, true);
            h = h + torch::randn_like(h) * 0.1 + torch::rand({1, 8}) + torch::randint(0, 3, {4, 1});
            h = h * torch::empty_like(h).normal_(1.0, 0.1) + torch::normal(0.0, 1.0, {4, 8});
            return torch::alpha_dropout(h, 0.2, true).sum() +
                   torch::rrelu(h, 0.1, 0.3, true).mean();
          }),
      {data({4, 8})});
}

TEST_CASE("embedding, gather, index and scatter") {
  replays_like_eager(
      subject(
          {{10, 6}, {6, 10}},
          [](auto& p, const Batch& b) {
            auto e = torch::embedding(p[0], b[0]);
            auto logits = torch::matmul(e, p[1]);
            auto picked = logits.gather(2, b[0].unsqueeze(2)).sum();
            auto rows = p[0].index_select(0, b[0].flatten()).sum();
            auto indexed =
                logits.index({torch::indexing::Slice(), b[1], torch::indexing::Slice(1, 3)}).sum();
            auto put = torch::zeros({10})
                           .index_put({b[0].flatten()}, logits.flatten(0, 1).select(1, 0), true)
                           .pow(2)
                           .sum();
            auto scattered = torch::zeros({3, 10})
                                 .scatter_add(1, b[0].slice(0, 0, 3), logits.select(2, 1))
                                 .cos()
                                 .sum();
            return picked + rows + indexed + put + scattered +
                   logits.masked_fill(b[2] > 0, -1.0).mean();
          }),
      {torch::arange(12).remainder(10).view({3, 4}), torch::tensor({0, 2, 3}), data({3, 4, 10})});
}

TEST_CASE("scaled dot-product attention, with and without mask and dropout") {
  replays_like_eager(
      subject({{8, 24}},
              [](auto& p, const Batch& b) {
                auto qkv = torch::matmul(b[0], p[0]).view({2, 5, 3, 2, 4}).permute({2, 0, 3, 1, 4});
                auto causal =
                    at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true);
                auto masked =
                    at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], b[1], 0.0, false);
                auto dropped =
                    at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.3, false);
                return (causal * masked + dropped).pow(2).sum();
              }),
      {data({2, 5, 8}), data({5, 5})});
}

TEST_CASE("convolutions, transposed ones, and pooling with indices") {
  replays_like_eager(subject({{4, 3, 3, 3}, {4}, {4, 3, 2, 2}, {4, 1, 3}},
                             [](auto& p, const Batch& b) {
                               auto h = torch::conv2d(b[0], p[0], p[1], 1, 1);
                               auto [pooled, indices] = torch::max_pool2d_with_indices(h, {2, 2});
                               auto unpooled = torch::max_unpool2d(pooled, indices, {8, 8});
                               auto up = torch::conv_transpose2d(pooled, p[2], {}, 2);
                               auto line = torch::conv1d(h.flatten(2).slice(2, 0, 16), p[3], {}, 1,
                                                         1, 1, 4);
                               return up.pow(2).sum() + unpooled.mean() + line.tanh().sum() +
                                      torch::avg_pool2d(h, 2).cos().sum() +
                                      torch::adaptive_avg_pool2d(h, {3, 3}).sin().sum() +
                                      torch::upsample_nearest2d(h, {16, 16}).mean();
                             }),
                     {data({2, 3, 8, 8})});
}

TEST_CASE("LSTM and GRU") {
  struct Net : torch::nn::Module {
    Net()
        : lstm(register_module(
              "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(5, 6).num_layers(2).dropout(0.2)))),
          gru(register_module("gru", torch::nn::GRU(6, 4))) {}
    Tensor forward(const Tensor& x) {
      auto [out, state] = lstm(x);
      auto [y, last] = gru(out);
      return y.pow(2).sum() + std::get<1>(state).mean() + last.sum();
    }
    torch::nn::LSTM lstm;
    torch::nn::GRU gru;
  };
  const auto make = [] {
    auto net = std::make_shared<Net>();
    return Subject{
        net->parameters(), [net](const Batch& b) { return net->forward(b[0]); }, {}, net};
  };
  replays_like_eager(make, {data({7, 3, 5})});
}

TEST_CASE("lists of tensors: cat, stack, split, chunk, unbind") {
  replays_like_eager(
      subject({{4, 9}, {4, 3}},
              [](auto& p, const Batch& b) {
                auto parts = torch::mm(b[0], p[0]).split(3, 1);
                auto all = torch::cat({parts[0], parts[2], torch::mm(b[0], p[1])}, 1);
                auto pile = torch::stack({parts[0], parts[1]}).unbind(0);
                auto halves = all.chunk(2, 0);
                return all.pow(2).sum() + (pile[0] * pile[1]).sum() +
                       (halves[0] * halves[1].exp()).mean();
              }),
      {data({4, 4})});
}

TEST_CASE("optional tensors that are not there") {
  replays_like_eager(subject({{8, 8}},
                             [](auto& p, const Batch& b) {
                               auto h = torch::linear(b[0], p[0]);
                               h = torch::layer_norm(h, {8}) + torch::group_norm(h, 2) +
                                   torch::instance_norm(h.unsqueeze(0), {}, {}, {}, {}, true, 0.1,
                                                        1e-5, false)[0];
                               h = h + torch::batch_norm(h, {}, {}, {}, {}, true, 0.1, 1e-5, false);
                               return h.pow(2).sum();
                             }),
                     {data({4, 8})});
}

namespace {
void with_constants() {
  replays_like_eager(
      subject({{4, 4}},
              [](auto& p, const Batch& b) {
                const std::vector<float> scale{1.f, 2.f, 3.f, 4.f};
                auto h = torch::mm(b[0], p[0]) * 0.5 + 1 -
                         torch::tensor({0.25, 0.5, 0.75, 1.0}, torch::kFloat);
                h = h * torch::tensor(scale) + torch::arange(4) * torch::ones_like(h) +
                    torch::full({4, 1}, 0.125);
                h = h + torch::eye(4) * torch::linspace(0, 1, 4) +
                    torch::scalar_tensor(2.5) / torch::tensor(3.0f);
                return (h.pow(2) / 7).sum() +
                       torch::one_hot(torch::tensor({1, 0, 3}), 4).sum() * p[0].sum() +
                       h.clamp_min(0.1).mean();
              }),
      {data({4, 4})});
}
}  // namespace
TEST_CASE("numbers and constants made in the step") {
  with_constants();
  const AsOlderLibTorch older;
  with_constants();
}

namespace {
void with_accessor() {
  replays_like_eager(subject({{4, 4}},
                             [](auto& p, const Batch& b) {
                               auto mask = torch::zeros({4, 4});
                               auto a = mask.accessor<float, 2>();
                               for (int i = 0; i < 4; ++i) a[i][3 - i] = 2.0f;
                               auto h = torch::mm(b[0], p[0]) * mask;
                               // written again through the same pointer, after an op has read it
                               a[0][0] = 5.0f;
                               return (h + mask * p[0]).sum();
                             }),
                     {data({4, 4})});
}
}  // namespace
TEST_CASE("a tensor that the host fills through an accessor is a constant") {
  with_accessor();
  const AsOlderLibTorch older;
  with_accessor();
}

namespace {
void with_fresh_memory() {
  replays_like_eager(subject({{4, 4}},
                             [](auto& p, const Batch& b) {
                               auto mask = torch::empty({4, 4});
                               // nobody is told
                               auto* lies_there =
                                   const_cast<float*>(mask.template const_data_ptr<float>());
                               for (int i = 0; i < 16; ++i) lies_there[i] = static_cast<float>(i);
                               auto* written = mask.template data_ptr<float>();
                               for (int i = 0; i < 16; ++i) written[i] = static_cast<float>(i);
                               auto other = torch::mm(b[0], p[0]) * mask;
                               std::fill_n(lies_there, 16, -1.0f);  // what a replay finds there
                               return other.sum();
                             }),
                     {data({4, 4})}, {.same_peak_when_captured = true});
}
}  // namespace
TEST_CASE("fresh memory may hold what the host then writes: it is a constant all the same") {
  with_fresh_memory();
  const AsOlderLibTorch older;
  with_fresh_memory();
}

TEST_CASE("ops that change in place how a tensor lies, after a random one") {
  replays_like_eager(subject({{6, 8}},
                             [](auto& p, const Batch& b) {
                               auto h = torch::dropout(torch::mm(b[0], p[0]), 0.5, true) * 2;
                               auto before = h.view({32});
                               h.transpose_(0, 1).unsqueeze_(0);
                               auto g = torch::dropout(h.exp(), 0.5, true).squeeze_(0).t_();
                               g.swapaxes_(0, 1);
                               return (h * h).sum() + (g.t() * before.view({4, 8})).sum();
                             }),
                     {data({4, 6})});
}

TEST_CASE("outputs that an op makes larger") {
  replays_like_eager(subject({{6, 8}},
                             [](auto& p, const Batch& b) {
                               auto h = torch::dropout(torch::mm(b[0], p[0]), 0.5, true);
                               auto product = torch::empty({0}), grown = torch::zeros({2});
                               {
                                 const torch::NoGradGuard constant;
                                 torch::mm_out(product, b[0], b[0].t());
                                 grown.resize_({4, 4}).fill_(0.5);
                               }
                               return torch::mm(product + grown, h).sum();
                             }),
                     {data({4, 6})});
}

TEST_CASE("parameters shared between layers") {
  replays_like_eager(subject({{6, 6}},
                             [](auto& p, const Batch& b) {
                               auto h = b[0];
                               for (int i = 0; i < 3; ++i) h = torch::tanh(torch::mm(h, p[0])) + h;
                               return torch::mm(h, p[0].t()).pow(2).sum();
                             }),
                     {data({4, 6})});
}

TEST_CASE("frozen and unused parameters keep no gradient") {
  const auto make = [] {
    Subject s;
    s.parameters = {weight({6, 6}), weight({6, 6}), weight({3})};
    s.parameters[1].requires_grad_(false);
    s.loss = [p = s.parameters](const Batch& b) {
      return torch::mm(torch::mm(b[0], p[0]).relu(), p[1]).pow(2).sum();
    };
    return s;
  };
  replays_like_eager(make, {data({4, 6})});
}

TEST_CASE("several uses of one input, and a loss of several terms") {
  replays_like_eager(subject({{6, 6}, {6}},
                             [](auto& p, const Batch& b) {
                               auto h = torch::mm(b[0], p[0]);
                               return F::mse_loss(h, b[0]) + 0.1 * h.abs().mean() +
                                      (p[1] * b[0]).pow(2).mean() + 1e-3 * p[0].norm();
                             }),
                     {data({4, 6})});
}

TEST_CASE("double precision") {
  const auto make = [] {
    Subject s;
    s.parameters = {torch::randn({6, 6}, torch::kDouble).requires_grad_()};
    s.loss = [p = s.parameters](const Batch& b) {
      return torch::softmax(torch::mm(b[0].to(torch::kDouble), p[0]), 1).pow(2).sum();
    };
    return s;
  };
  replays_like_eager(make, {data({4, 6})});
}

TEST_CASE("bfloat16 autocast inside the step") {
  replays_like_eager(subject({{8, 8}, {8, 8}},
                             [](auto& p, const Batch& b) {
                               at::autocast::set_autocast_enabled(at::kCPU, true);
                               auto h = torch::linear(b[0], p[0]).relu();
                               h = torch::linear(h, p[1]) + torch::linear(h, p[0]);
                               at::autocast::clear_cache();
                               at::autocast::set_autocast_enabled(at::kCPU, false);
                               return h.to(torch::kFloat).pow(2).sum();
                             }),
                     {data({4, 8})});
}

TEST_CASE("complex numbers with lazy conjugation") {
  replays_like_eager(
      subject({{4, 4}, {4, 4}},
              [](auto& p, const Batch& b) {
                auto z = torch::complex(torch::mm(b[0], p[0]), torch::mm(b[0], p[1]));
                return torch::real(torch::matmul(z, z.conj().transpose(0, 1))).sum() +
                       torch::view_as_real(z.conj() * 2).pow(2).sum();
              }),
      {data({4, 4})});
}

namespace {
struct Cube : torch::autograd::Function<Cube> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto x = context->get_saved_variables()[0];
    return {gradients[0] * 3 * x * x};
  }
};
}  // namespace

TEST_CASE("a custom autograd function") {
  replays_like_eager(
      subject({{5, 5}},
              [](auto& p, const Batch& b) { return Cube::apply(torch::mm(b[0], p[0])).sum(); }),
      {data({3, 5})});
}

TEST_CASE("hooks on tensors run as ops of the step") {
  replays_like_eager(subject({{5, 5}},
                             [](auto& p, const Batch& b) {
                               auto h = torch::mm(b[0], p[0]);
                               h.register_hook([](const Tensor& g) { return g * 0.5; });
                               return h.tanh().sum();
                             }),
                     {data({3, 5})});
}

TEST_CASE("regions without gradient") {
  replays_like_eager(subject({{5, 5}},
                             [](auto& p, const Batch& b) {
                               auto h = torch::mm(b[0], p[0]);
                               Tensor scale;
                               {
                                 const torch::NoGradGuard no_grad;
                                 scale = 1 / (h.abs().mean() + 1);
                               }
                               Tensor shift;
                               {
                                 const c10::InferenceMode inference;
                                 shift = torch::matmul(b[0], b[0].t()).reshape({-1}).sum();
                               }
                               return (h * scale).sum() + h.mean() * shift.clone();
                             }),
                     {data({3, 5})});
}

TEST_CASE("a gradient penalty: backward inside the step with create_graph") {
  replays_like_eager(subject({{5, 5}},
                             [](auto& p, const Batch& b) {
                               auto loss = torch::mm(b[0], p[0]).tanh().sum();
                               auto gradient =
                                   torch::autograd::grad({loss}, {p[0]}, {}, true, true)[0];
                               return loss + gradient.pow(2).sum();
                             }),
                     {data({3, 5})});
}

TEST_CASE("an input that asks for its gradient gets it") {
  const auto make =
      subject({{5, 5}}, [](auto& p, const Batch& b) { return torch::mm(b[0], p[0]).tanh().sum(); });
  torch::manual_seed(7);
  Subject s = make();
  Replaying step{s.parameters, s.loss};
  Tensor expected;
  for (int i = 0; i < 3; ++i) {
    auto x = data({3, 5}).requires_grad_();
    s.parameters[0].mutable_grad() = Tensor();
    step(Batch{x});
    if (i == 0) expected = x.grad();
    REQUIRE(x.grad().defined());
    CHECK(same_bits(x.grad(), expected));
  }
  CHECK(step.counters().replays == 2);
}

TEST_CASE("gradients accumulate over micro-batches") {
  const auto make =
      subject({{6, 6}}, [](auto& p, const Batch& b) { return torch::mm(b[0], p[0]).tanh().sum(); });
  const TrainStepCounters counters =
      compare_with_eager(make,
                         [](int i) {
                           return Batch{data({4, 6}, static_cast<std::uint64_t>(i))};
                         },
                         {.zero_grad = false});
  CHECK(counters.captures == 2);  // the first finds no gradient, the others find one
  CHECK(counters.replays == 3);
}

TEST_CASE("a module in evaluation mode") {
  const auto make = [] {
    torch::nn::Sequential net(torch::nn::Linear(6, 6), torch::nn::BatchNorm1d(6),
                              torch::nn::Dropout(0.5));
    net->eval();
    return Subject{net->parameters(),
                   [net](const Batch& b) mutable { return net->forward(b[0]).pow(2).sum(); },
                   net->buffers(), net.ptr()};
  };
  replays_like_eager(make, {data({4, 6})});
}

TEST_CASE("a number read by the host is compared on every replay") {
  replays_like_eager(subject({{6, 6}},
                             [](auto& p, const Batch& b) {
                               const auto longest = b[1].max().template item<std::int64_t>();
                               return torch::mm(b[0].narrow(0, 0, longest), p[0]).tanh().sum();
                             }),
                     {data({4, 6}), torch::tensor({1, 3, 2})});
}

TEST_CASE("several results come back, the loss first") {
  torch::manual_seed(7);
  auto p = weight({5, 5});
  Replaying step{std::vector<Tensor>{p}, [&](const Tensor& x, int power) {
                   auto logits = torch::mm(x, p);
                   return std::tuple{logits.pow(power).sum(), logits};
                 }};
  const auto x = data({3, 5});
  const auto [loss, logits] = step(x, 2);
  p.mutable_grad() = Tensor();
  const auto [again, logits_again] = step(x, 2);
  CHECK(same_bits(loss, again));
  CHECK(same_bits(logits, logits_again));
  CHECK_FALSE(logits_again.requires_grad());
  CHECK(step.counters().replays == 1);
  p.mutable_grad() = Tensor();
  step(x, 3);
  CHECK(step.counters().captures == 2);  // a plain value belongs to the signature
}
