// Manual checkpointing against eager, bit for bit; and what it keeps, runs again, refuses and
// leaves behind.

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <reprise/libtorch/checkpoint.hpp>
#include <reprise/libtorch/checkpointed.hpp>
#include <reprise_test/eager.hpp>
#include <reprise_test/refusal.hpp>

using namespace reprise;
using namespace reprise::fronts;
using namespace reprise::reporting;
using namespace reprise::tensors;
using namespace reprise::training;
using namespace reprise::testing;
using reprise_test::refusal;
using namespace reprise::literals;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

struct Plain {
  template <class F, class... A>
  auto operator()(F&& f, A&&... a) const {
    return reprise::fronts::call_function(f, std::forward<A>(a)...);
  }
};

struct WithCheckpoint {
  CheckpointOptions options{};
  template <class F, class... A>
  auto operator()(F&& f, A&&... a) const {
    return checkpoint(options, std::forward<F>(f), std::forward<A>(a)...);
  }
};

/// Runs `program` with blocks called and with blocks checkpointed, from one seed; what it returns
/// must be the same, and the generator.
template <class Program>
void same_as_eager(const Program& program, const CheckpointOptions& options = {}) {
  torch::manual_seed(11);
  const Tensors expected = program(Plain{});
  const Tensor generator = generator_state();
  torch::manual_seed(11);
  const Tensors found = program(WithCheckpoint{options});
  REQUIRE(expected.size() == found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("tensor " << i);
    CHECK(same_bits(expected[i], found[i]));
  }
  CHECK(same_bits(generator, generator_state()));
}

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }

/// How often ops run, by name, while it is on.
struct OpCounts final : DispatchHook {
  std::map<std::string, int> counts{};
  OpCounts() { switch_on(); }
  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet below,
             torch::jit::Stack& stack) override {
    ++counts[op.schema().name()];
    op.redispatchBoxed(below, &stack);
  }
};

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.code() == Errc::recompute_failed);
    return e.what();
  }
  FAIL("nothing was thrown");
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a checkpointed block gives eager's results and gradients, with dropout inside") {
  same_as_eager([](auto call) {
    torch::nn::Linear a(16, 32), b(32, 8);
    const Tensor x = leaf({4, 16});
    const auto block = [&](const Tensor& t) {
      return b(torch::dropout(torch::gelu(a(t)), 0.5, true));
    };
    const Tensor y = call(block, torch::tanh(x));
    const Tensor z = torch::dropout(y, 0.3, true);
    z.square().sum().backward();
    return Tensors{
        y, z, x.grad(), a->weight.grad(), a->bias.grad(), b->weight.grad(), b->bias.grad()};
  });
}

TEST_CASE(
    "the forward of a checkpointed block keeps its argument and its result, and nothing else") {
  torch::nn::Sequential block(torch::nn::Linear(64, 64), torch::nn::ReLU(),
                              torch::nn::Linear(64, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 64));
  const Tensor x = leaf({32, 64});
  const std::int64_t before = device_memory().live().count;
  Tensor y = checkpoint(block, x);
  CHECK(device_memory().live().count - before == 32 * 64 * 4);
  y.sum().backward();
  y.reset();
  block->zero_grad();
  x.mutable_grad().reset();
  CHECK(device_memory().live().count == before);
}

TEST_CASE("what was computed again is let go as backward consumes it") {
  const Tensor w = leaf({64, 64});
  std::vector<std::int64_t> live;
  const auto note = [&](const Tensor&) { live.push_back(device_memory().live().count); };
  const Tensor x = leaf({64, 64});
  Tensor y = checkpoint(
      [&](Tensor t) {
        for (int i = 0; i < 4; ++i) {
          t = torch::tanh(t);
          if (t.requires_grad()) t.register_hook(note);
        }
        return t;
      },
      x);
  y.backward(torch::ones_like(y));
  REQUIRE(live.size() == 4);  // hooks of the first run: at the outputs of tanh 4, 3, 2, 1
  // Of the four results, those whose backward is done are gone when the next one begins.
  CHECK(live[1] - live[2] == 64 * 64 * 4);
  CHECK(live[2] - live[3] == 64 * 64 * 4);
}

TEST_CASE("batch-norm statistics move once, and computing again sees what they were") {
  same_as_eager([](auto call) {
    torch::nn::BatchNorm2d norm(3);
    torch::nn::Conv2d conv(3, 3, 3);
    Tensors seen;
    for (int step = 0; step < 3; ++step) {
      const Tensor x = leaf({2, 3, 8, 8});
      const Tensor y = call([&](const Tensor& t) { return torch::relu(norm(conv(t))); }, x);
      y.square().sum().backward();
      seen.insert(seen.end(), {y, x.grad(), norm->running_mean.clone(), norm->running_var.clone(),
                               norm->num_batches_tracked.clone()});
    }
    CHECK(norm->num_batches_tracked.template item<std::int64_t>() == 3);
    return seen;
  });
}

TEST_CASE("a block that reads what it writes outside of itself computes the same again") {
  same_as_eager([](auto call) {
    const Tensor scale = torch::ones({1});
    const Tensor x = leaf({5});
    const auto block = [&](const Tensor& t) {
      const Tensor y = torch::exp(t * scale.detach().clone());
      const torch::NoGradGuard quietly;
      scale.add_(1);
      return y;
    };
    const Tensor y = call(block, call(block, x));
    scale.mul_(10);
    y.sum().backward();
    CHECK(scale.template item<float>() == 30);
    return Tensors{y, x.grad(), scale};
  });
}

TEST_CASE("computing again does not make others refuse a buffer that it writes") {
  const Tensor buffer = torch::ones({4}), x = leaf({4}), w = leaf({4});
  const Tensor y = checkpoint(
      [&](const Tensor& t) {
        {
          const torch::NoGradGuard quietly;
          buffer.add_(1);
        }
        return torch::exp(t);
      },
      x);
  const Tensor z = w * buffer;  // saves the buffer as it is now
  (y.sum() + z.sum()).backward();
  y.sum();
  CHECK(same_bits(w.grad(), torch::full({4}, 2.0)));
}

TEST_CASE("computing again stops at the last tensor that is needed") {
  int runs = 0, ends = 0;
  const Tensor x = leaf({8});
  const auto block = [&](const Tensor& t) {
    ++runs;
    const Tensor h = torch::exp(t);
    const Tensor y = h + 1;  // saves nothing
    ++ends;
    return y;
  };
  checkpoint(block, x).sum().backward();
  CHECK(runs == 2);
  CHECK(ends == 1);
  checkpoint({.early_stop = false}, block, x).sum().backward();
  CHECK(runs == 4);
  CHECK(ends == 3);
}

TEST_CASE("a block of which backward needs nothing that was made inside is not run again") {
  int runs = 0;
  const Tensor x = leaf({8}), w = leaf({8});
  const auto block = [&](const Tensor& t) {
    ++runs;
    return t * w;
  };
  checkpoint(block, x).sum().backward();
  CHECK(runs == 1);
  CHECK(same_bits(x.grad(), w.detach()));
}

TEST_CASE("nested checkpoints give eager's numbers and keep the outermost argument alone") {
  const auto program = [](auto call) {
    torch::nn::Linear a(16, 16), b(16, 16), c(16, 16);
    const Tensor x = leaf({4, 16});
    const auto inner = [&](const Tensor& t) {
      return torch::dropout(torch::tanh(b(torch::gelu(t))), 0.5, true);
    };
    const auto middle = [&](const Tensor& t) {
      return torch::sigmoid(call(inner, call(inner, torch::relu(a(t)))));
    };
    const auto outer = [&](const Tensor& t) { return torch::exp(c(call(middle, torch::tanh(t)))); };
    const std::int64_t before = device_memory().live().count;
    const Tensor y = call(outer, x);
    if constexpr (std::is_same_v<decltype(call), WithCheckpoint>)
      if (!call.options.keep) CHECK(device_memory().live().count - before == 4 * 16 * 4);
    y.sum().backward();
    return Tensors{
        y, x.grad(), a->weight.grad(), b->weight.grad(), b->bias.grad(), c->weight.grad()};
  };
  same_as_eager(program);
  same_as_eager(program, {.early_stop = false});
  same_as_eager(program, {.keep = keep_matmuls, .early_stop = true});
}

TEST_CASE("backward may be run again while the graph is retained") {
  const auto program = [](auto call) {
    torch::nn::Linear a(8, 8);
    const Tensor x = leaf({4, 8});
    const auto inner = [&](const Tensor& t) {
      return torch::dropout(torch::tanh(a(t)), 0.5, true);
    };
    const Tensor y =
        call([&](const Tensor& t) { return torch::exp(call(inner, torch::sin(t))); }, x);
    y.sum().backward({}, /*retain_graph=*/true);
    const Tensor first = x.grad().clone();
    y.sum().backward({}, /*retain_graph=*/true);
    y.square().sum().backward();
    return Tensors{first, x.grad(), a->weight.grad()};
  };
  same_as_eager(program);
  same_as_eager(program, {.keep = keep_matmuls, .early_stop = true});
}

TEST_CASE("what a partial backward did not use is let go at its end") {
  const Tensor x = leaf({16, 16}), w = leaf({16, 16});
  const Tensor y =
      checkpoint([&](const Tensor& t) { return torch::exp(torch::tanh(torch::exp(t)) * w); }, x);
  const std::int64_t before = device_memory().live().count;
  Tensor g = torch::autograd::grad({y.sum()}, {w}, {}, /*retain_graph=*/true)[0];
  g.reset();
  CHECK(device_memory().live().count == before);
}

TEST_CASE("arguments of all kinds reach the block both times") {
  same_as_eager([](auto call) {
    const Tensor x = leaf({4, 4}), y = leaf({4, 4}), mask = torch::rand({4, 4}) > 0.5;
    const auto block = [](Tensor a, const std::vector<Tensor>& list, std::optional<Tensor> m,
                          std::tuple<Tensor, int> pair, double s, const std::string& how,
                          Tensor undefined) {
      Tensor h = torch::exp(a * s) + list[0].sin() * list[1];
      if (m) h = h.masked_fill(*m, 0.5);
      if (how == "twice") h = torch::tanh(h) * std::get<1>(pair) + std::get<0>(pair).cos();
      CHECK(!undefined.defined());
      return std::tuple{h, torch::sigmoid(h), 7};
    };
    const auto [a, b, seven] = call(block, x, std::vector{y, x}, std::optional{mask},
                                    std::tuple{y, 3}, 0.5, "twice", Tensor());
    CHECK(seven == 7);
    (a.sum() + b.square().sum()).backward();
    return Tensors{a, b, x.grad(), y.grad()};
  });
}

TEST_CASE("parameters captured in a function get their gradients where no argument needs one") {
  same_as_eager([](auto call) {
    const Tensor w = leaf({8, 8}), x = torch::randn({4, 8});
    const Tensor y = call([w](const Tensor& t) { return torch::tanh(t.mm(w)).mm(w); }, x);
    y.sum().backward();
    return Tensors{y, w.grad()};
  });
}

TEST_CASE("a block may return its argument, views of it, and views of what it made") {
  same_as_eager([](auto call) {
    const Tensor x = leaf({6, 4});
    const Tensor h = torch::tanh(x);
    const auto [same, part, other] = call(
        [](const Tensor& t) {
          const Tensor e = torch::exp(t);
          return std::tuple{t, t.narrow(0, 1, 2), e.transpose(0, 1).select(0, 2)};
        },
        h);
    CHECK(same.is_same(h));
    CHECK(part.storage().is_alias_of(h.storage()));
    (same.sum() + part.exp().sum() + other.square().sum()).backward();
    return Tensors{part, other, x.grad()};
  });
}

TEST_CASE("ops in place on what the block made") {
  same_as_eager([](auto call) {
    torch::nn::Linear a(8, 8);
    const Tensor x = leaf({4, 8});
    const Tensor y = call(
        [&](const Tensor& t) {
          Tensor h = a(t).relu_();
          h = h * 2;
          h.select(0, 1).mul_(3);
          h.add_(t);
          return torch::dropout(h, 0.5, true).sigmoid_();
        },
        x);
    y.square().sum().backward();
    return Tensors{y, x.grad(), a->weight.grad()};
  });
}

TEST_CASE("ops in place on the argument of a block, alone and nested") {
  const auto program = [](auto call) {
    const Tensor x = leaf({4, 8});
    const auto inner = [](Tensor t) {
      const Tensor before = t.exp();
      t.mul_(2);
      t.select(0, 0).add_(1);
      return torch::sin(t) * before;
    };
    Tensor h = x * 2;
    const Tensor y = call(inner, h);
    const Tensor z = call([&](const Tensor& t) { return torch::tanh(call(inner, t * 3)); }, y);
    z.square().sum().backward();
    return Tensors{h, y, z, x.grad()};
  };
  same_as_eager(program);
  same_as_eager(program, {.early_stop = false});
}

TEST_CASE("what autograd refuses without a checkpoint is refused with one") {
  const Tensor x = leaf({4});
  const auto spoils = [](const Tensor& t) {
    const Tensor h = torch::sigmoid(t);
    const Tensor y = torch::exp(h);
    h.mul_(2);
    return y;
  };
  CHECK_THROWS_AS(spoils(x).sum().backward(), c10::Error);
  for (const bool early : {true, false}) {
    const std::string text =
        message_of([&] { checkpoint({.early_stop = early}, spoils, x).sum().backward(); });
    CHECK(contains(text, "made by aten::"));
    CHECK(contains(text, "[4] Float"));
    CHECK(
        contains(text, "was written in place after it was saved (version 1, saved at version 0)"));
  }
}

TEST_CASE("an argument that is written before backward is refused") {
  const Tensor x = torch::randn({2, 3}), w = leaf({2, 3});
  const Tensor y = checkpoint([&](const Tensor& t) { return torch::exp(t + w); }, x);
  x.add_(1);
  const std::string text = message_of([&] { y.sum().backward(); });
  CHECK(contains(
      text, "argument 0 ([2, 3] Float) was written in place after the forward (version 1, was 0)"));
  CHECK(!w.grad().defined());
}

TEST_CASE("a recorded write to a captured tensor is refused before it happens") {
  const Tensor x = leaf({4}), captured = torch::ones({4});
  const std::string text = message_of([&] {
    checkpoint(
        [&](const Tensor& t) {
          captured.mul_(t);
          return captured + 1;
        },
        x);
  });
  CHECK(contains(text,
                 "aten::mul_ writes in place to a tensor ([4] Float) that the function captures"));
  CHECK(same_bits(captured, torch::ones({4})));
  CHECK(checkpoint([&](const Tensor& t, Tensor c) { return torch::exp(c.mul_(t)); }, x,
                   captured.clone())
            .requires_grad());
}

TEST_CASE("ops whose results are kept do not run again, all others do") {
  torch::nn::Linear a(8, 16), b(16, 8);
  const Tensor x = leaf({4, 8});
  const auto block = [&](const Tensor& t) { return torch::exp(torch::tanh(b(torch::gelu(a(t))))); };
  const auto counted = [&](const CheckpointOptions& options) {
    const Tensor y = checkpoint(options, block, x);
    OpCounts ran;
    y.sum().backward();
    return std::vector{ran.counts["aten::addmm"], ran.counts["aten::gelu"],
                       ran.counts["aten::tanh"]};
  };
  CHECK(counted({}) == std::vector{2, 1, 1});
  CHECK(counted({.keep = keep_matmuls}) == std::vector{0, 1, 1});
  CHECK(counted({.keep = [](std::string_view op) {
          return op == "aten::gelu" || op == "aten::tanh";
        }}) == std::vector{2, 0, 0});
}

TEST_CASE("kept results: same numbers, with random ops among them and writes to them") {
  const auto program = [](auto call) {
    torch::nn::Linear a(8, 8), b(8, 8);
    const Tensor x = leaf({4, 8});
    const auto block = [&](const Tensor& t) {
      Tensor h = a(t);
      h.mul_(2).add_(1);  // writes to what was kept
      h = torch::dropout(h, 0.5, true);
      h = b(torch::exp(torch::dropout(h, 0.2, true)));
      return std::tuple{h, torch::sin(h)};
    };
    const auto [y, z] = call(block, torch::cos(x));
    const Tensor twice = y.mul_(2);  // and so does the user
    (twice.sum() + z.square().sum()).backward({}, /*retain_graph=*/false);
    return Tensors{y, z, x.grad(), a->weight.grad(), b->weight.grad()};
  };
  const auto random_too = [](std::string_view op) {
    return keep_matmuls(op) || op.find("bernoulli") != op.npos || op.find("dropout") != op.npos;
  };
  // sin saves h, which the user then writes to: eager refuses that. Without it:
  const auto allowed = [](auto call) {
    torch::nn::Linear a(8, 8), b(8, 8);
    const Tensor x = leaf({4, 8});
    const auto block = [&](const Tensor& t) {
      Tensor h = a(t);
      h.mul_(2).add_(1);
      h = torch::dropout(h, 0.5, true);
      return b(torch::exp(torch::dropout(h, 0.2, true)));
    };
    const Tensor y = call(block, torch::cos(x));
    y.mul_(2);
    y.sum().backward();
    return Tensors{y, x.grad(), a->weight.grad(), b->weight.grad()};
  };
  CHECK_THROWS(program(Plain{}));
  CHECK_THROWS(program(WithCheckpoint{{.keep = random_too}}));
  same_as_eager(allowed, {.keep = keep_matmuls});
  same_as_eager(allowed, {.keep = random_too});
  same_as_eager(allowed, {.keep = random_too, .early_stop = false});
  same_as_eager(allowed, {.keep = [](std::string_view) { return true; }});
}

TEST_CASE("autocast is as it was in the forward, wherever backward is called") {
  for (const bool inside : {false, true}) {
    same_as_eager([&](auto call) {
      torch::nn::Linear a(16, 16), b(16, 16);
      const Tensor x = leaf({8, 16});
      const auto inner = [&](const Tensor& t) { return torch::gelu(b(torch::tanh(b(t)))); };
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::increment_nesting();
      const Tensor y = call([&](const Tensor& t) { return call(inner, a(t)); }, x);
      const Tensor loss = y.to(torch::kFloat).square().sum();
      CHECK(y.scalar_type() == torch::kBFloat16);
      if (inside) loss.backward();
      if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      if (!inside) loss.backward();
      CHECK(!at::autocast::is_autocast_enabled(at::kCPU));
      return Tensors{y, x.grad(), a->weight.grad(), b->weight.grad()};
    });
  }
}

TEST_CASE("generators of the user's own are as they were") {
  same_as_eager([](auto call) {
    at::Generator own = at::make_generator<at::CPUGeneratorImpl>(3);
    const Tensor x = leaf({8, 8});
    const auto block = [&](const Tensor& t) {
      return torch::exp(t * torch::rand({8, 8}, own)) * torch::rand({8, 8});
    };
    const Tensor y = call(block, call(block, x));
    y.sum().backward();
    return Tensors{y, x.grad(), torch::rand({4}, own)};
  });
}

TEST_CASE("without gradients the block is just called") {
  int runs = 0;
  const Tensor x = leaf({4});
  const auto block = [&](const Tensor& t) {
    ++runs;
    return torch::exp(t);
  };
  {
    const torch::NoGradGuard none;
    CHECK(same_bits(checkpoint(block, x), torch::exp(x)));
  }
  {
    const c10::InferenceMode inference;
    CHECK(same_bits(checkpoint(block, x), torch::exp(x)));
  }
  CHECK(runs == 2);
}

TEST_CASE("a gradient of a gradient goes through a checkpoint as through eager") {
  const auto program = [](auto call) {
    torch::nn::Linear a(8, 8);
    const Tensor x = leaf({4, 8});
    const auto inner = [&](const Tensor& t) { return torch::tanh(a(t)); };
    const Tensor y = call(
        [&](const Tensor& t) { return torch::exp(torch::dropout(call(inner, t), 0.5, true)); }, x);
    const Tensor g = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    (y.sum() + g.square().sum()).backward();
    return Tensors{y, g, x.grad(), a->weight.grad()};
  };
  same_as_eager(program);
  same_as_eager(program, {.keep = keep_matmuls});
}

TEST_CASE("a block may run backward inside of itself") {
  const auto program = [](auto call) {
    const Tensor x = leaf({4, 8}), w = leaf({8, 8});
    const auto block = [&](const Tensor& t) {
      const Tensor y = torch::tanh(torch::dropout(t, 0.5, true).mm(w));
      const Tensor g =
          torch::autograd::grad({y.square().sum()}, {t}, {}, true, /*create_graph=*/true)[0];
      return y + torch::sin(g);
    };
    const Tensor y = call(block, torch::exp(x));
    y.sum().backward();
    return Tensors{y, x.grad(), w.grad()};
  };
  same_as_eager(program);
  same_as_eager(program, {.early_stop = false});
}

namespace {

/// Asks for its saved tensor twice.
struct AsksTwice : torch::autograd::Function<AsksTwice> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x) {
    const Tensor y = x.exp();
    ctx->save_for_backward({y});
    return y;
  }
  static Tensors backward(torch::autograd::AutogradContext* ctx, const Tensors& grads) {
    return {grads[0] * ctx->get_saved_variables()[0] * ctx->get_saved_variables()[0]};
  }
};

}  // namespace

TEST_CASE("a function of the user's own may ask for what it saved more than once") {
  same_as_eager([](auto call) {
    const Tensor x = leaf({4});
    const Tensor y =
        call([](const Tensor& t) { return torch::sin(AsksTwice::apply(torch::cos(t))); }, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("an exception in the forward leaves nothing behind") {
  const Tensor x = leaf({8, 8});
  const std::int64_t before = device_memory().live().count;
  CHECK_THROWS_AS(checkpoint(
                      [](const Tensor& t) -> Tensor {
                        const Tensor h = torch::exp(torch::tanh(t));
                        throw std::runtime_error("no");
                      },
                      x),
                  std::runtime_error);
  CHECK(device_memory().live().count == before);
  CHECK(DispatchHook::current() == nullptr);
  CHECK(SavedTensorHooks::current() == nullptr);
  checkpoint([](const Tensor& t) { return torch::exp(t); }, x).sum().backward();
  CHECK(same_bits(x.grad(), torch::exp(x)));
}

TEST_CASE(
    "an exception while computing again leaves the state as it was, and backward may be tried "
    "again") {
  const Tensor x = leaf({8});
  const Tensor count = torch::zeros({1});
  bool fails = true;
  int runs = 0;
  torch::manual_seed(3);
  const auto block = [&](const Tensor& t) {
    const Tensor h = torch::dropout(torch::exp(t), 0.5, true);
    {
      const torch::NoGradGuard quietly;
      count.add_(1);
    }
    if (runs++ > 0 && fails) throw std::runtime_error("the second time");
    return torch::tanh(h);
  };
  const Tensor y = checkpoint({.early_stop = false}, block, x);
  const Tensor generator = generator_state();
  CHECK_THROWS_AS(y.sum().backward({}, true), std::runtime_error);
  CHECK(same_bits(generator, generator_state()));
  CHECK(count.item<float>() == 1);
  CHECK(count._version() == 1);
  CHECK(DispatchHook::current() == nullptr);
  CHECK(torch::GradMode::is_enabled());
  fails = false;
  y.sum().backward();
  const Tensor got = x.grad().clone();
  x.mutable_grad().reset();
  torch::manual_seed(3);
  torch::tanh(torch::dropout(torch::exp(x), 0.5, true)).sum().backward();
  CHECK(same_bits(got, x.grad()));
}

TEST_CASE("backward may be called from another thread") {
  same_as_eager([](auto call) {
    torch::nn::Linear a(8, 8);
    const Tensor x = leaf({4, 8});
    const auto inner = [&](const Tensor& t) {
      return torch::dropout(torch::tanh(a(t)), 0.5, true);
    };
    const Tensor y = call([&](const Tensor& t) { return torch::exp(call(inner, t)); }, x);
    const Tensor loss = y.sum();
    std::thread([&] { loss.backward(); }).join();
    return Tensors{y, x.grad(), a->weight.grad()};
  });
}

TEST_CASE("threads train their own models at once, and one graph may be used by two") {
  const auto train = [](int seed, auto call) {
    Tensor w = torch::arange(64, torch::kFloat).reshape({8, 8}).mul(0.01 * seed).requires_grad_();
    for (int i = 0; i < 20; ++i) {
      const Tensor y = call([&](const Tensor& t) { return torch::exp(torch::tanh(t.mm(w)).mm(w)); },
                            torch::ones({4, 8}));
      y.sum().backward();
    }
    return w.grad();
  };
  std::vector<Tensor> found(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back(
        [&, i] { found[static_cast<std::size_t>(i)] = train(i, WithCheckpoint{}); });
  for (std::thread& t : threads) t.join();
  for (int i = 0; i < 4; ++i)
    CHECK(same_bits(found[static_cast<std::size_t>(i)], train(i, Plain{})));

  const Tensor x = leaf({64, 64});
  const Tensor y =
      checkpoint([](const Tensor& t) { return torch::exp(torch::tanh(torch::sin(t))); }, x).sum();
  Tensors grads(2);
  const auto differentiate = [&](std::size_t i) {
    grads[i] = torch::autograd::grad({y}, {x}, {}, true)[0];
  };
  std::thread other([&] { differentiate(0); });
  differentiate(1);
  other.join();
  CHECK(same_bits(grads[0], grads[1]));
}

TEST_CASE("a function that does something else the second time is found out") {
  const Tensor x = leaf({4, 6});
  int runs = 0;
  const auto backward = [&](auto f) {
    runs = 0;
    const Tensor y = checkpoint({.early_stop = false}, f, x);
    return message_of([&] { y.sum().backward(); });
  };
  SECTION("another shape") {
    const std::string text = backward([&](const Tensor& t) {
      return torch::exp(torch::tanh(runs++ == 0 ? t : t.narrow(1, 0, 2))).sum();
    });
    CHECK(
        contains(text, "tensor 0 that is saved for backward is [4, 2] Float, made by aten::tanh"));
    CHECK(contains(text, "the first time it was [4, 6] Float, made by aten::tanh"));
  }
  SECTION("another dtype") {
    const std::string text = backward([&](const Tensor& t) {
      return torch::exp(runs++ == 0 ? t * 1 : t.to(torch::kDouble)).sum();
    });
    CHECK(contains(text,
                   "is [4, 6] Double, made by aten::exp; the first time it was [4, 6] Float, made "
                   "by aten::exp"));
  }
  SECTION("fewer ops") {
    const std::string text = backward([&](const Tensor& t) {
      return runs++ == 0 ? torch::exp(torch::tanh(t)).sum() : torch::tanh(t).sum();
    });
    CHECK(contains(text, "saved 1 tensors for backward, and 2 the first time"));
    CHECK(contains(text, "made by aten::exp ([4, 6] Float)"));
  }
  SECTION("more ops") {
    const std::string text = backward([&](const Tensor& t) {
      return runs++ == 0 ? torch::tanh(t).sum() : torch::exp(torch::tanh(t)).sum();
    });
    CHECK(contains(text, "saves more tensors for backward than the 1 of the first time"));
    CHECK(contains(text, "aten::exp"));
  }
  SECTION("another kept op") {
    const Tensor y = checkpoint(
        {.keep = [](std::string_view op) { return op == "aten::exp" || op == "aten::tanh"; },
         .early_stop = false},
        [&](const Tensor& t) { return runs++ == 0 ? torch::exp(t).sum() : torch::tanh(t).sum(); },
        x);
    CHECK(contains(message_of([&] { y.backward(); }),
                   "is aten::tanh; the first time it was aten::exp"));
  }
  CHECK(DispatchHook::current() == nullptr);
}

TEST_CASE("a thousand steps leave the allocator where it was") {
  torch::nn::Sequential model(torch::nn::Linear(16, 16), torch::nn::ReLU(),
                              torch::nn::BatchNorm1d(16), torch::nn::Dropout(0.5),
                              torch::nn::Linear(16, 16), torch::nn::Tanh());
  const Tensor x = leaf({8, 16});
  const auto step = [&](const CheckpointOptions& options) {
    Tensor h = x * 2;
    const Tensor y = checkpoint(
        options, [&](Tensor t) { return checkpoint_sequential(options, model, 3, t.relu_()); }, h);
    y.sum().backward();
  };
  step({});
  const std::int64_t before = device_memory().live().count;
  for (int i = 0; i < 1000; ++i) {
    step(i % 2 == 0 ? CheckpointOptions{} : CheckpointOptions{.keep = keep_matmuls});
    if (device_memory().live().count != before)
      FAIL("step " << i << " left " << device_memory().live().count - before << " bytes");
  }
  CHECK(device_memory().live().count == before);
}

TEST_CASE("graphs that are never run backward leave nothing either") {
  const Tensor x = leaf({8, 16});
  const std::int64_t before = device_memory().live().count;
  for (int i = 0; i < 100; ++i) {
    Tensor h = torch::exp(x);
    const Tensor y = checkpoint([](Tensor t) { return torch::exp(t.relu_()); }, h);
  }
  CHECK(device_memory().live().count == before);
}

TEST_CASE("checkpoint_sequential runs a chain in segments") {
  for (const std::size_t segments : {1U, 2U, 3U, 5U}) {
    same_as_eager([&](auto call) {
      torch::nn::Sequential chain(torch::nn::Linear(8, 8), torch::nn::Tanh(),
                                  torch::nn::Dropout(0.5), torch::nn::Linear(8, 8),
                                  torch::nn::Sigmoid());
      const Tensor x = leaf({4, 8});
      const Tensor y = std::is_same_v<decltype(call), Plain>
                           ? chain->forward(x)
                           : checkpoint_sequential(chain, segments, x);
      y.square().sum().backward();
      return Tensors{y, x.grad(), chain->parameters()[0].grad(), chain->parameters()[2].grad()};
    });
  }
  std::vector<std::function<Tensor(Tensor)>> functions(
      4, [](Tensor t) { return torch::exp(t * 0.5); });
  const Tensor x = leaf({16});
  const std::int64_t before = device_memory().live().count;
  const Tensor y = checkpoint_sequential(functions, 2, x);
  // the results of exp of the last segment; the first keeps x alone
  CHECK(device_memory().live().count - before == 2 * 16 * 4);
  const std::string advice =
      " segments of 4 modules; name at least one, and no more than there are modules";
  CHECK(refusal([&] { checkpoint_sequential(functions, 5, x); }) ==
        "bad argument: checkpoint_sequential: 5" + advice);
  CHECK(refusal([&] { checkpoint_sequential(functions, 0, x); }) ==
        "bad argument: checkpoint_sequential: 0" + advice);
}

namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int width) : fc(width, width), norm(width) {
    register_module("fc", fc);
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& x) { return torch::relu(norm(fc(x))); }
  torch::nn::Linear fc;
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(Block);

std::vector<std::string> names(const torch::nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& p : module.named_parameters()) all.push_back(p.key());
  for (const auto& b : module.named_buffers()) all.push_back(b.key());
  return all;
}

}  // namespace

TEST_CASE("Checkpointed is the same module, with the same names") {
  torch::manual_seed(1);
  torch::nn::Sequential eager(Block(8), torch::nn::Linear(8, 8), Block(8));
  torch::manual_seed(1);
  torch::nn::Sequential ours(Checkpointed<Block>(8), Checkpointed<torch::nn::Linear>(8, 8),
                             Checkpointed<BlockImpl>(8));
  CHECK(names(*eager) == names(*ours));
  const Tensor x = torch::randn({4, 8});
  const std::int64_t before = device_memory().live().count;
  const Tensor y = ours->forward(x);
  // one result a block, and what the statistics were
  CHECK(device_memory().live().count - before == 3 * 4 * 8 * 4 + 2 * (32 + 32 + 8));
  const Tensor z = eager->forward(x);
  CHECK(same_bits(y, z));
  y.square().sum().backward();
  z.square().sum().backward();
  for (std::size_t i = 0; i < eager->parameters().size(); ++i)
    CHECK(same_bits(eager->parameters()[i].grad(), ours->parameters()[i].grad()));
  for (std::size_t i = 0; i < eager->buffers().size(); ++i)
    CHECK(same_bits(eager->buffers()[i], ours->buffers()[i]));
}

TEST_CASE("Checkpointed around a module that exists trains that module's parameters") {
  Block block(8);
  Checkpointed<Block> wrapped(block);
  CHECK(names(*block) == names(*wrapped));
  wrapped->forward(torch::randn({4, 8})).sum().backward();
  for (const Tensor& p : block->parameters()) CHECK(p.grad().defined());
  CHECK(block->norm->num_batches_tracked.item<std::int64_t>() == 1);

  Checkpointed<torch::nn::Linear> fc(8, 4);
  fc->options.keep = keep_matmuls;
  const auto copy = std::dynamic_pointer_cast<Checkpointed<torch::nn::Linear>::Impl>(fc->clone());
  REQUIRE(copy != nullptr);
  CHECK(same_bits(copy->weight, fc->weight));
  CHECK(!copy->weight.is_alias_of(fc->weight));
  CHECK(copy->options.keep);
}

TEST_CASE("modules of all kinds are called through their forward, and live until backward") {
  Tensor y, z, w;
  {
    Block block(8);
    y = checkpoint(*block, torch::randn({4, 8}));       // the module itself
    z = checkpoint(block.ptr(), torch::randn({4, 8}));  // a pointer to it
    w = checkpoint(&BlockImpl::forward, block.ptr(), torch::randn({4, 8}));
    w = checkpoint([owned = std::make_unique<int>(2),
                    block](const Tensor& x) mutable { return block(x) * *owned; },
                   w);
  }
  (y.sum() + z.sum() + w.sum()).backward();
  CHECK(reprise::fronts::is_borrowed<c10::IntArrayRef>);
}

TEST_CASE("inside a TrainStep and a MemoryBudget's step a block is just called: the plan decides") {
  const auto make = [] {
    torch::manual_seed(4);
    return torch::nn::Sequential(Checkpointed<Block>(8), torch::nn::Dropout(0.5),
                                 Checkpointed<Block>(8));
  };
  const Tensor x = torch::randn({4, 8});
  torch::nn::Sequential eager = make(), compiled = make(), guided = make();
  const auto loss_of = [&](torch::nn::Sequential& model) {
    return model->forward(x).square().sum();
  };
  Replaying step{compiled, [&](Tensor) { return loss_of(compiled); }};
  MemoryBudget budget{1_GiB};
  for (int i = 0; i < 3; ++i) {
    torch::manual_seed(static_cast<std::uint64_t>(i));
    const Tensor expected = loss_of(eager);
    expected.backward();
    torch::manual_seed(static_cast<std::uint64_t>(i));
    CHECK(same_bits(expected, step(x)));
    torch::manual_seed(static_cast<std::uint64_t>(i));
    Tensor loss;
    {
      const auto guard = budget.step();
      loss = loss_of(guided);
      loss.backward();
    }
    CHECK(same_bits(expected, loss));
  }
  // the second call finds gradients to add to, and is another step
  CHECK(step.counters().captures == 2);
  CHECK(step.counters().replays == 1);
  CHECK(step.counters().eager_runs == 0);
  for (std::size_t i = 0; i < eager->parameters().size(); ++i) {
    CHECK(same_bits(eager->parameters()[i].grad(), compiled->parameters()[i].grad()));
    CHECK(same_bits(eager->parameters()[i].grad(), guided->parameters()[i].grad()));
  }
}

TEST_CASE(
    "where a TrainStep cannot run from its graph, the blocks that the user named are checkpoints") {
  // its state at the next step cannot be known: no graph
  at::Generator own = at::detail::createCPUGenerator(7);
  torch::nn::Linear a(64, 64);
  const Tensor x = torch::randn({32, 64});
  int calls = 0;
  const auto block = [&](const Tensor& t) {
    ++calls;
    return torch::exp(torch::tanh(torch::sin(a(t))));
  };
  const auto loss_of = [&](auto call) {
    own.set_current_seed(7);
    return call(block, x + torch::randn({32, 64}, own)).square().mean();
  };
  const Tensor expected = loss_of(Plain{});
  expected.backward();
  const Tensor gradient = a->weight.grad().clone();

  Replaying step{a, [&](Tensor) { return loss_of(WithCheckpoint{}); }};
  for (int i = 0; i < 3; ++i) {
    a->zero_grad();
    calls = 0;
    CHECK(same_bits(expected, step(x)));
    CHECK(same_bits(gradient, a->weight.grad()));
    CHECK(calls == (i == 0 ? 1 : 2));  // recorded: once; then in forward, and again in backward
  }
  CHECK(step.counters().replays == 0);
  CHECK(step.counters().eager_runs == 2);
}

TEST_CASE("where a MemoryBudget has no plan, the blocks that the user named can be checkpoints") {
  int calls = 0, step_number = 0;
  const auto loss_of = [&](torch::nn::Linear& layer, auto call, const Tensor& x) {
    Tensor h = x;
    for (int i = 0; i < 4 + step_number; ++i)  // another stream in every step
      h = call(
          [&](const Tensor& t) {
            ++calls;
            return torch::exp(torch::tanh(torch::sin(layer(t))));
          },
          h);
    return h.square().mean();
  };
  const Tensor x = torch::randn({1024, 64});
  torch::nn::Linear plain(64, 64), ours(64, 64);
  {
    const torch::NoGradGuard no_grad;
    ours->weight.copy_(plain->weight);
    ours->bias.copy_(plain->bias);
  }
  const Bytes waiting = device_memory().reserved() - device_memory().live();
  std::string notices;
  MemoryBudget budget{
      device_memory().live() + 6400_KiB,
      {.run = {.on_notice = [&](const std::string& text) { notices += text + "\n"; }},
       .plan_in_background = false,
       .over_budget = OverBudget::go_on,
       .use_checkpoints_if_unplanned = true}};
  for (; step_number < 10; ++step_number) {
    INFO("step " << step_number << '\n' << notices);
    plain->zero_grad();
    ours->zero_grad();
    device_memory().reset_peak();
    const Bytes start = device_memory().live();
    const Tensor expected = loss_of(plain, Plain{}, x);
    expected.backward();
    const Bytes eager = device_memory().peak() - start;
    calls = 0;
    Tensor loss;
    {
      const auto guard = budget.step();
      loss = loss_of(ours, WithCheckpoint{}, x);
      loss.backward();
    }
    CHECK(same_bits(expected, loss));
    CHECK(same_bits(plain->weight.grad(), ours->weight.grad()));
    const bool blocks = budget.counters().block_steps > 0;
    CHECK(calls == (blocks ? 2 : 1) * (4 + step_number));
    if (blocks) CHECK(budget.last().peak - budget.last().base < eager);
    // nothing waits for guided steps any more
    if (blocks) CHECK(device_memory().reserved() - device_memory().live() == waiting);
  }
  CHECK(budget.counters().block_steps == 5);  // five that never come again are enough
  CHECK(contains(notices, "had not come before"));
  {
    MemoryBudget outer{1_GiB};
    const auto guard = outer.step();
    CHECK_THROWS_AS(budget.step(), Error);
  }
  budget.set(1_GiB);
  calls = 0;
  {
    const auto guard = budget.step();
    loss_of(ours, WithCheckpoint{}, x).backward();
  }
  CHECK(calls == 4 + step_number);
  CHECK(budget.counters().block_steps == 5);
}
