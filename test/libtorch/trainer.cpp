// The driver of the example programs: what it measures, and what it calls equal.

#include "support/trainer.hpp"

#include <cmath>

#include <reprise_test/catch.hpp>

using namespace examples;

namespace {

constexpr int steps = 3;

TrainerOptions tiny(const char* model, std::uint64_t seed = 1) {
  return {.model = model, .config = models::Config::tiny, .seed = seed, .optimizer = "adam"};
}

/// Base and peak of a few steps of one copy, alone in the process.
std::vector<StepRecord> alone(const char* model, Mode mode) {
  Trainer trainer(tiny(model), mode);
  std::vector<StepRecord> records;
  const reprise::Bytes others = reprise::device_memory().live() - trainer.held();
  for (int i = 0; i < steps; ++i) {
    const auto batch = trainer.make_batch(i);
    records.push_back(trainer.step(batch, others));
  }
  return records;
}

}  // namespace

TEST_CASE("a copy beside another is charged what it would hold alone") {
  for (const auto* model : {"mlp", "resnet18", "bert"}) {
    const auto eager_alone = alone(model, Mode::eager), replay_alone = alone(model, Mode::replay);
    const reprise::Bytes strangers = reprise::device_memory().live();
    Trainer eager(tiny(model), Mode::eager), replay(tiny(model), Mode::replay);
    for (int i = 0; i < steps; ++i) {
      const auto batch = eager.make_batch(i);
      const StepRecord a = eager.step(batch, strangers + replay.held()),
                       b = replay.step(batch, strangers + eager.held());
      const auto k = static_cast<std::size_t>(i);
      INFO(model << ", step " << i);
      CHECK(a.base == eager_alone[k].base);
      CHECK(a.peak == eager_alone[k].peak);
      CHECK(b.base == replay_alone[k].base);
      CHECK(b.peak == replay_alone[k].peak);
      CHECK(b.predicted_peak == replay_alone[k].predicted_peak);
      CHECK(a.optimizer_peak == eager_alone[k].optimizer_peak);
    }
  }
}

TEST_CASE("a budget bounds a copy alone, also beside another") {
  const reprise::Bytes strangers = reprise::device_memory().live();
  // Returns the budget of the last step, in bytes.
  const auto train_inside = [&](const reprise::Budget& budget) {
    TrainerOptions options = tiny("vit");
    options.budget = budget;
    options.effort = 0.3;
    std::vector<StepRecord> alone;
    {
      Trainer trainer(options, Mode::replay);
      for (int i = 0; i < steps; ++i)
        alone.push_back(trainer.step(trainer.make_batch(i), strangers));
    }
    Trainer eager(tiny("vit"), Mode::eager), budgeted(options, Mode::replay);
    for (int i = 0; i < steps; ++i) {
      const auto batch = eager.make_batch(i);
      const StepRecord a = eager.step(batch, strangers + budgeted.held()),
                       b = budgeted.step(batch, strangers + eager.held());
      const auto k = static_cast<std::size_t>(i);
      INFO("step " << i);
      CHECK_FALSE(first_difference(eager, budgeted));
      CHECK(b.base == alone[k].base);
      CHECK(b.floor == alone[k].floor);
      CHECK(b.budget == alone[k].budget);
      if (i == 0) continue;
      CHECK(b.budget < a.peak);
      CHECK(b.peak <= b.budget);
      CHECK(b.peak == b.predicted_peak);
      CHECK(b.recomputed > 0);
    }
    return alone.back().budget;
  };
  train_inside(reprise::Budget::share(85));
  const reprise::Bytes bytes = train_inside(reprise::Budget::savable(60));
  CHECK(train_inside(bytes) == bytes);
}

TEST_CASE("the base of a step is its parameters, buffers, batch and optimizer state") {
  Trainer trainer(tiny("resnet18"), Mode::eager);
  const reprise::Bytes strangers = reprise::device_memory().live() - trainer.held();
  reprise::Bytes model{}, data{};
  for (const auto& list : {trainer.task().module->parameters(), trainer.task().module->buffers()})
    for (const auto& tensor : list) model.count += static_cast<std::int64_t>(tensor.nbytes());
  const auto batch = trainer.make_batch(0);
  for (const auto& tensor : batch) data.count += static_cast<std::int64_t>(tensor.nbytes());
  CHECK(trainer.held() == model);
  CHECK(trainer.step(batch, strangers).base == model + data);
  reprise::Bytes moments{};  // Adam's two for each parameter
  for (const auto& parameter : trainer.task().module->parameters())
    moments.count += 2 * static_cast<std::int64_t>(parameter.nbytes());
  CHECK(trainer.step(batch, strangers).base == model + data + moments);
}

TEST_CASE("the first difference is named, down to the last bit") {
  Trainer a(tiny("resnet18"), Mode::eager), b(tiny("resnet18"), Mode::eager);
  const auto batch = a.make_batch(0);
  a.step(batch);
  b.step(batch);
  CHECK_FALSE(first_difference(a, b));

  SECTION("a parameter") {
    b.task().module->named_parameters()["fc.bias"].data_ptr<float>()[3] *= 1 + 1e-7F;
    CHECK(first_difference(a, b).value_or("").starts_with("parameter fc.bias, element 3: "));
  }
  SECTION("a gradient") {
    b.task().module->named_parameters()["layer2.0.conv1.weight"].mutable_grad() *= 2;
    CHECK(first_difference(a, b).value_or("").starts_with(
        "gradient of layer2.0.conv1.weight, element 0: "));
  }
  SECTION("a gradient that is missing") {
    b.task().module->named_parameters()["conv1.weight"].mutable_grad().reset();
    CHECK(first_difference(a, b) == "gradient of conv1.weight, only the first is there");
  }
  SECTION("a buffer") {
    b.task().module->named_buffers()["bn1.num_batches_tracked"] += 1;
    CHECK(first_difference(a, b) == "buffer bn1.num_batches_tracked, element 0: 1 and 2");
  }
  SECTION("the random stream") {
    const auto other = Trainer(tiny("resnet18", 2), Mode::eager).stream();
    at::Generator(b.stream()).set_state(other.get_state());
    CHECK(first_difference(a, b).value_or("").starts_with("generator state, "));
  }
  SECTION("the sign of zero, and no NaN that is the same") {
    CHECK(first_difference(torch::zeros(2), -torch::zeros(2)) == "element 0: 0 and -0");
    const auto nan = torch::full({2}, NAN);
    CHECK_FALSE(first_difference(nan, nan.clone()));
  }
  SECTION("shape, type and layout") {
    CHECK(first_difference(torch::zeros(2), torch::zeros(3)) == "shapes differ");
    CHECK(first_difference(torch::zeros(2), torch::zeros(2, torch::kDouble)) == "types differ");
    CHECK(first_difference(torch::zeros({2, 3}), torch::zeros({3, 2}).t()) == "strides differ");
  }
}
