#pragma once
// Small training loops, in the style of public C++ trainers: what bench/first_plan.cpp runs.
//
//   for (const Loop& loop : loops()) {
//     Running running = loop.start();          // a model, its optimizers and its data, always the same
//     Tensor loss = running.step(0);           // the body of the loop: one training step
//   }

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace first_plan {

using torch::Tensor;
namespace nn = torch::nn;

struct Running {
  std::function<Tensor(int)> step{};  ///< step number -> loss
  std::vector<Tensor> parameters{};
};

struct Loop {
  std::string name{};
  int sequences = 1;  ///< op sequences that take turns once the optimizer has its state
  std::function<Running()> start{};
};

inline nn::Conv2d conv(int in, int out, int stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1));
}

/// The usual body: forward, backward, step.
template <class Module, class Optimizer, class Loss>
Running usual(const Module& model, std::shared_ptr<Optimizer> optimizer, Loss loss_of) {
  return {[model = model, optimizer, loss_of](int i) mutable {
            optimizer->zero_grad();
            Tensor loss = loss_of(*model, i);
            loss.backward();
            optimizer->step();
            return loss;
          },
          model->parameters()};
}

template <class Module>
std::shared_ptr<torch::optim::Adam> adam(const Module& model, double rate = 1e-3) {
  return std::make_shared<torch::optim::Adam>(model->parameters(), rate);
}

// ── convolutional networks ───────────────────────────────────────────────────────────────────────

struct ResidualImpl : nn::Module {
  explicit ResidualImpl(int channels) {
    register_module("a", a = conv(channels, channels));
    register_module("b", b = conv(channels, channels));
    register_module("m", m = nn::BatchNorm2d(channels));
    register_module("n", n = nn::BatchNorm2d(channels));
  }
  Tensor forward(const Tensor& x) { return torch::relu(x + n(b(torch::relu(m(a(x)))))); }
  nn::Conv2d a{nullptr}, b{nullptr};
  nn::BatchNorm2d m{nullptr}, n{nullptr};
};
TORCH_MODULE(Residual);

inline nn::Sequential resnet(int blocks, int channels) {
  nn::Sequential net(conv(3, channels, 2), nn::BatchNorm2d(channels), nn::ReLU());
  for (int i = 0; i < blocks; ++i) net->push_back(Residual(channels));
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(channels, 10));
  return net;
}

inline Tensor pixels(std::int64_t n, int size, int seed) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + seed));
  return torch::rand({n, 3, size, size});
}
inline Tensor labels(std::int64_t n) { return torch::arange(n) % 10; }

inline Running resnet_loop() {
  auto net = resnet(8, 32);
  auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(),
                                                 torch::optim::SGDOptions(0.01).momentum(0.9));
  return usual(net, sgd, [](nn::SequentialImpl& model, int i) {
    return torch::cross_entropy_loss(model.forward(pixels(8, 48, i)), labels(8));
  });
}

/// One optimizer step for every fourth backward.
inline Running accumulation_loop() {
  auto net = resnet(6, 32);
  const auto optimizer = adam(net);
  return {[net = net, optimizer](int i) mutable {
            Tensor loss = torch::cross_entropy_loss(net->forward(pixels(8, 40, i)), labels(8)) / 4;
            loss.backward();
            if (i % 4 == 3) {
              optimizer->step();
              optimizer->zero_grad();
            }
            return loss;
          },
          net->parameters()};
}

/// Every third step measures instead of training.
inline Running validation_loop() {
  auto net = resnet(6, 32);
  const auto optimizer = adam(net);
  return {[net = net, optimizer](int i) mutable {
            const bool training = i % 3 != 2;
            net->train(training);
            const torch::AutoGradMode grad(training);
            const Tensor x = pixels(training ? 8 : 32, 40, i);
            if (training) optimizer->zero_grad();
            Tensor loss = torch::cross_entropy_loss(net->forward(x), labels(x.size(0)));
            if (training) {
              loss.backward();
              optimizer->step();
            }
            return loss;
          },
          net->parameters()};
}

/// Boxes and classes on a grid; images of four sizes.
inline Running detection_loop() {
  nn::Sequential net(conv(3, 32, 2), nn::BatchNorm2d(32), nn::ReLU());
  for (int i = 0; i < 5; ++i) net->push_back(Residual(32));
  net->push_back(conv(32, 32, 2));
  net->push_back(nn::ReLU());
  net->push_back(conv(32, 4 + 10));
  return usual(net, adam(net), [](nn::SequentialImpl& model, int i) {
    static constexpr int sizes[] = {48, 64, 56, 40};
    const Tensor out = model.forward(pixels(6, sizes[i * 7 % 4], i));
    const Tensor boxes = out.narrow(1, 0, 4), classes = out.narrow(1, 4, 10);
    return torch::smooth_l1_loss(boxes, torch::full_like(boxes, 0.5)) +
           torch::binary_cross_entropy_with_logits(classes, torch::zeros_like(classes)).mean();
  });
}

inline Running super_resolution_loop() {
  nn::Sequential net(conv(3, 32), nn::PReLU());
  for (int i = 0; i < 6; ++i) net->push_back(Residual(32));
  net->push_back(conv(32, 48));
  net->push_back(nn::PixelShuffle(4));
  return usual(net, adam(net), [](nn::SequentialImpl& model, int i) {
    const Tensor out = model.forward(pixels(4, 24, i));
    return torch::l1_loss(out, torch::full_like(out, 0.4));
  });
}

struct UNetImpl : nn::Module {
  explicit UNetImpl(int c) {
    register_module("time", time = nn::Linear(1, c));
    register_module("in", in = conv(3, c));
    register_module("a", a = Residual(c));
    register_module("down", down = conv(c, 2 * c, 2));
    register_module("b", b = Residual(2 * c));
    register_module("lower", lower = conv(2 * c, 4 * c, 2));
    register_module("c", middle = Residual(4 * c));
    register_module("up", up = conv(4 * c, 2 * c));
    register_module("d", d = Residual(2 * c));
    register_module("upper", upper = conv(4 * c, c));
    register_module("e", e = Residual(c));
    register_module("out", out = conv(2 * c, 3));
  }
  Tensor forward(const Tensor& x, const Tensor& t) {
    const Tensor h = a(in(x) + time(t).unsqueeze(2).unsqueeze(3)), k = b(torch::silu(down(h)));
    Tensor y = middle(torch::silu(lower(k)));
    y = d(up(torch::upsample_nearest2d(y, k.sizes().slice(2))));
    y = e(upper(torch::upsample_nearest2d(torch::cat({y, k}, 1), h.sizes().slice(2))));
    return out(torch::cat({y, h}, 1));
  }
  nn::Linear time{nullptr};
  nn::Conv2d in{nullptr}, down{nullptr}, lower{nullptr}, up{nullptr}, upper{nullptr}, out{nullptr};
  Residual a{nullptr}, b{nullptr}, middle{nullptr}, d{nullptr}, e{nullptr};
};
TORCH_MODULE(UNet);

/// The noise is drawn in the step, as DDPM trainers do.
inline Running diffusion_loop() {
  UNet net(16);
  return usual(net, adam(net), [](UNetImpl& model, int i) {
    const Tensor x = pixels(6, 32, i), t = torch::rand({6, 1}), noise = torch::randn_like(x);
    const Tensor level = t.unsqueeze(2).unsqueeze(3);
    return torch::mse_loss(model.forward(x * (1 - level) + noise * level, t), noise);
  });
}

// ── two networks ─────────────────────────────────────────────────────────────────────────────────

/// The critic's step and the generator's take turns; each has an optimizer.
inline Running gan_loop() {
  nn::Sequential generator(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(32, 64, 4)),
                           nn::BatchNorm2d(64), nn::ReLU());
  for (const auto& [in, out] : {std::pair(64, 48), {48, 32}, {32, 16}}) {
    generator->push_back(
        nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, out, 4).stride(2).padding(1)));
    generator->push_back(nn::BatchNorm2d(out));
    generator->push_back(nn::ReLU());
  }
  generator->push_back(conv(16, 3));
  generator->push_back(nn::Tanh());
  nn::Sequential critic;
  for (const auto& [in, out] : {std::pair(3, 32), {32, 48}, {48, 64}}) {
    critic->push_back(conv(in, out, 2));
    critic->push_back(nn::BatchNorm2d(out));
    critic->push_back(nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)));
  }
  critic->push_back(nn::Flatten());
  critic->push_back(nn::Linear(64 * 16, 1));
  const auto g = adam(generator), d = adam(critic);
  std::vector<Tensor> all = generator->parameters();
  for (const Tensor& p : critic->parameters()) all.push_back(p);
  return {[=](int i) mutable {
            const Tensor z = torch::randn({16, 32, 1, 1});
            const Tensor ones = torch::ones({16, 1});
            Tensor loss;
            if (i % 2 == 0) {
              critic->zero_grad();
              const Tensor real = critic->forward(pixels(16, 32, i));
              const Tensor fake = critic->forward(generator->forward(z).detach());
              loss = torch::binary_cross_entropy_with_logits(real, ones) +
                     torch::binary_cross_entropy_with_logits(fake, torch::zeros_like(ones));
              loss.backward();
              d->step();
            } else {
              generator->zero_grad();
              const Tensor fake = critic->forward(generator->forward(z));
              loss = torch::binary_cross_entropy_with_logits(fake, ones);
              loss.backward();
              g->step();
            }
            return loss;
          },
          all};
}

struct VaeImpl : nn::Module {
  VaeImpl() {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
    register_module("mean", mean);
    register_module("spread", spread);
  }
  Tensor loss(const Tensor& x) {
    const Tensor h = encoder->forward(x), m = mean(h), v = spread(h);
    const Tensor z = m + torch::randn_like(m) * (0.5 * v).exp();
    const Tensor again = torch::sigmoid(decoder->forward(z));
    return torch::binary_cross_entropy(again, x.flatten(1)) -
           0.5 * (1 + v - m.pow(2) - v.exp()).mean();
  }
  nn::Sequential encoder{conv(3, 32),     nn::ReLU(), conv(32, 32, 2), nn::ReLU(),
                         conv(32, 32, 2), nn::ReLU(), nn::Flatten()};
  nn::Sequential decoder{nn::Linear(32, 1024), nn::ReLU(), nn::Linear(1024, 1024), nn::ReLU(),
                         nn::Linear(1024, 3 * 32 * 32)};
  nn::Linear mean{32 * 64, 32}, spread{32 * 64, 32};
};
TORCH_MODULE(Vae);

inline Running vae_loop() {
  Vae net;
  return usual(net, adam(net), [](VaeImpl& model, int i) { return model.loss(pixels(32, 32, i)); });
}

// ── attention ────────────────────────────────────────────────────────────────────────────────────

struct BlockImpl : nn::Module {
  BlockImpl(int width, int n_heads, bool is_causal) : heads(n_heads), causal(is_causal) {
    register_module("n1", n1 = nn::LayerNorm(nn::LayerNormOptions({width})));
    register_module("n2", n2 = nn::LayerNorm(nn::LayerNormOptions({width})));
    register_module("qkv", qkv = nn::Linear(width, 3 * width));
    register_module("mix", mix = nn::Linear(width, width));
    register_module("up", up = nn::Linear(width, 4 * width));
    register_module("down", down = nn::Linear(4 * width, width));
  }
  Tensor forward(Tensor x) {
    const auto n = x.size(0), t = x.size(1), c = x.size(2);
    const auto parts = qkv(n1(x)).view({n, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4});
    const Tensor q = parts[0], k = parts[1], v = parts[2];
    Tensor scores = q.matmul(k.transpose(2, 3)) /
                    std::sqrt(static_cast<double>(c) / static_cast<double>(heads));
    if (causal) scores = scores.masked_fill(torch::ones({t, t}).triu(1).to(torch::kBool), -1e9);
    const Tensor mixed = torch::softmax(scores, 3).matmul(v).transpose(1, 2).reshape({n, t, c});
    x = x + torch::dropout(mix(mixed), 0.1, is_training());
    return x + torch::dropout(down(torch::gelu(up(n2(x)))), 0.1, is_training());
  }
  int heads;
  bool causal;
  nn::LayerNorm n1{nullptr}, n2{nullptr};
  nn::Linear qkv{nullptr}, mix{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

struct VitImpl : nn::Module {
  VitImpl(int width, int depth, int out) {
    register_module("patch", patch = nn::Linear(3 * 16, width));
    place = register_parameter("place", torch::randn({1, 64, width}) * 0.02);
    for (int i = 0; i < depth; ++i) blocks->push_back(Block(width, 4, false));
    register_module("blocks", blocks);
    register_module("head", head = nn::Linear(width, out));
  }
  [[nodiscard]] static Tensor patches(const Tensor& x) {
    return x.unfold(2, 4, 4)
        .unfold(3, 4, 4)
        .permute({0, 2, 3, 1, 4, 5})
        .reshape({x.size(0), -1, 48});
  }
  nn::Linear patch{nullptr}, head{nullptr};
  Tensor place;
  nn::Sequential blocks{};
};
TORCH_MODULE(Vit);

inline Running vit_loop() {
  Vit net(96, 6, 10);
  return usual(net, adam(net), [](VitImpl& model, int i) {
    const Tensor x = model.patch(VitImpl::patches(pixels(8, 32, i))) + model.place;
    return torch::cross_entropy_loss(model.head(model.blocks->forward(x).mean(1)), labels(8));
  });
}

/// A quarter of the patches is kept, chosen by lot in each step; all are predicted.
inline Running mae_loop() {
  Vit net(96, 5, 48);
  Vit decoder(96, 2, 48);
  std::vector<Tensor> all = net->parameters();
  for (const Tensor& p : decoder->parameters()) all.push_back(p);
  auto optimizer = std::make_shared<torch::optim::AdamW>(all, 1e-3);
  return {[=](int i) mutable {
            optimizer->zero_grad();
            const Tensor patches = VitImpl::patches(pixels(16, 32, i));
            const Tensor order = torch::rand({16, 64}).argsort(std::int64_t{1});
            const Tensor kept = order.narrow(1, 0, 16).unsqueeze(2);
            const Tensor seen = net->patch(patches) + net->place;
            const Tensor code = net->blocks->forward(seen.gather(1, kept.expand({-1, -1, 96})));
            const Tensor all_places =
                decoder->place.expand({16, 64, 96}).scatter_add(1, kept.expand({-1, -1, 96}), code);
            const Tensor again = decoder->head(decoder->blocks->forward(all_places));
            Tensor loss = torch::mse_loss(again, patches);
            loss.backward();
            optimizer->step();
            return loss;
          },
          all};
}

struct GptImpl : nn::Module {
  GptImpl(int width, int depth) {
    register_module("tokens", tokens = nn::Embedding(200, width));
    register_module("places", places = nn::Embedding(64, width));
    for (int i = 0; i < depth; ++i) blocks->push_back(Block(width, 4, true));
    register_module("blocks", blocks);
    register_module("norm", norm = nn::LayerNorm(nn::LayerNormOptions({width})));
    register_module("head", head = nn::Linear(nn::LinearOptions(width, 200).bias(false)));
  }
  Tensor forward(const Tensor& t) {
    return head(norm(blocks->forward(tokens(t) + places(torch::arange(t.size(1))))));
  }
  nn::Embedding tokens{nullptr}, places{nullptr};
  nn::Sequential blocks{};
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Gpt);

/// Gradients are clipped by their norm, and the losses of all steps are kept.
inline Running gpt_loop() {
  Gpt net(96, 6);
  auto optimizer = std::make_shared<torch::optim::AdamW>(net->parameters(), 1e-3);
  auto losses = std::make_shared<std::vector<Tensor>>();
  return {[=](int i) mutable {
            optimizer->zero_grad();
            torch::manual_seed(static_cast<std::uint64_t>(i));
            const Tensor text = torch::randint(200, {8, 65});
            Tensor loss =
                torch::cross_entropy_loss(net->forward(text.narrow(1, 0, 64)).view({-1, 200}),
                                          text.narrow(1, 1, 64).reshape(-1));
            loss.backward();
            nn::utils::clip_grad_norm_(net->parameters(), 1.0);
            optimizer->step();
            losses->push_back(loss.detach());
            return loss;
          },
          net->parameters()};
}

// ── others ───────────────────────────────────────────────────────────────────────────────────────

/// Rays are sampled, encoded by sines, and composed along their way.
inline Running nerf_loop() {
  nn::Sequential net(nn::Linear(63, 96), nn::ReLU());
  for (int i = 0; i < 6; ++i) {
    net->push_back(nn::Linear(96, 96));
    net->push_back(nn::ReLU());
  }
  net->push_back(nn::Linear(96, 4));
  return usual(net, adam(net, 5e-4), [](nn::SequentialImpl& model, int i) {
    torch::manual_seed(static_cast<std::uint64_t>(i));
    constexpr int rays = 64, samples = 32;
    const Tensor from = torch::rand({rays, 1, 3}), to = torch::rand({rays, 1, 3});
    const Tensor depth = torch::linspace(0, 1, samples).view({1, samples, 1});
    const Tensor at = from + (to - from) * (depth + torch::rand({rays, samples, 1}) / samples);
    std::vector<Tensor> code{at};
    for (int k = 0; k < 10; ++k) {
      code.push_back(torch::sin(at * std::exp2(k)));
      code.push_back(torch::cos(at * std::exp2(k)));
    }
    const Tensor out = model.forward(torch::cat(code, 2).view({-1, 63})).view({rays, samples, 4});
    const Tensor opaque = 1 - torch::exp(-torch::relu(out.select(2, 3)) / samples);
    const Tensor through = torch::cumprod(1 - opaque + 1e-10, 1);
    const Tensor color =
        (torch::sigmoid(out.narrow(2, 0, 3)) * (opaque * through).unsqueeze(2)).sum(1);
    return torch::mse_loss(color, torch::full_like(color, 0.5));
  });
}

struct TaggerImpl : nn::Module {
  TaggerImpl() {
    register_module("tokens", tokens);
    register_module("lstm", lstm);
    register_module("head", head);
  }
  nn::Embedding tokens{100, 48};
  nn::LSTM lstm{nn::LSTMOptions(48, 96).num_layers(2).batch_first(true)};
  nn::Linear head{96, 10};
};
TORCH_MODULE(Tagger);

inline Running rnn_loop() {
  Tagger net;
  return usual(net, adam(net), [](TaggerImpl& model, int i) {
    torch::manual_seed(static_cast<std::uint64_t>(i));
    const Tensor text = torch::randint(100, {32, 24});
    const Tensor out = model.head(std::get<0>(model.lstm(model.tokens(text))));
    return torch::cross_entropy_loss(out.view({-1, 10}), (text % 10).view(-1));
  });
}

inline std::vector<Loop> loops() {
  return {{"ResNet", 1, resnet_loop},
          {"GAN", 2, gan_loop},
          {"VAE", 1, vae_loop},
          {"diffusion U-Net", 1, diffusion_loop},
          {"ViT", 1, vit_loop},
          {"MAE", 1, mae_loop},
          {"NeRF", 1, nerf_loop},
          {"detection, 4 sizes", 4, detection_loop},
          {"super-resolution", 1, super_resolution_loop},
          {"accumulation of 4", 4, accumulation_loop},
          {"validation every 3rd", 2, validation_loop},
          {"LSTM", 1, rnn_loop},
          {"GPT", 1, gpt_loop}};
}

}  // namespace first_plan
