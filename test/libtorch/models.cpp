// The models of examples/models: what the literature says they are, and that they learn.

#include "models/task.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>

#include <reprise_test/catch.hpp>

using models::Config;
using models::Task;

namespace {

struct Known {
  const char* model;
  std::int64_t parameters;
  std::vector<std::pair<const char*, std::vector<std::int64_t>>> some;  // names and shapes
};

const std::vector<Known>& literature() {
  static const std::vector<Known> models{
      {"mlp", 2'913'290, {{"layers.0.weight", {1024, 784}}, {"layers.9.bias", {10}}}},
      {"resnet18",
       11'689'512,
       {{"conv1.weight", {64, 3, 7, 7}},
        {"layer1.0.conv1.weight", {64, 64, 3, 3}},
        {"layer4.0.downsample.0.weight", {512, 256, 1, 1}}}},
      {"resnet50",
       25'557'032,
       {{"layer1.0.conv3.weight", {256, 64, 1, 1}},
        {"layer3.5.bn2.bias", {256}},
        {"fc.weight", {1000, 2048}}}},
      {"resnet152",
       60'192'808,
       {{"layer3.35.conv2.weight", {256, 256, 3, 3}}, {"layer2.0.downsample.1.weight", {512}}}},
      {"unet",
       31'037'698,
       {{"inc.double_conv.0.weight", {64, 3, 3, 3}},
        {"down4.maxpool_conv.1.double_conv.3.weight", {1024, 1024, 3, 3}},
        {"up1.up.weight", {1024, 512, 2, 2}},
        {"outc.conv.bias", {2}}}},
      {"lstm",
       19'780'400,
       {{"encoder.weight", {10'000, 650}},
        {"rnn.weight_hh_l1", {2600, 650}},
        {"decoder.bias", {10'000}}}},
      {"bert",
       109'514'298,
       {{"bert.embeddings.word_embeddings.weight", {30'522, 768}},
        {"bert.encoder.layer.11.attention.self.query.weight", {768, 768}},
        {"bert.encoder.layer.0.output.LayerNorm.bias", {768}},
        {"cls.predictions.bias", {30'522}}}},
      {"gpt2",
       124'439'808,
       {{"transformer.wte.weight", {50'257, 768}},
        {"transformer.h.0.attn.c_attn.weight", {768, 2304}},
        {"transformer.h.11.mlp.c_proj.weight", {3072, 768}},
        {"transformer.ln_f.bias", {768}}}},
      {"vit",
       86'567'656,
       {{"class_token", {1, 1, 768}},
        {"encoder.pos_embedding", {1, 197, 768}},
        {"encoder.layers.encoder_layer_11.self_attention.in_proj_weight", {2304, 768}},
        {"encoder.layers.encoder_layer_0.mlp.3.weight", {768, 3072}},
        {"heads.head.weight", {1000, 768}}}},
  };
  return models;
}

/// Steps on one and the same batch, dropout active.
std::vector<double> train(Task& task, int steps) {
  torch::manual_seed(7);
  torch::optim::Adam optimizer(task.module->parameters(), torch::optim::AdamOptions(3e-3));
  const auto batch = task.make_batch(0);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    auto loss = task.loss(batch);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::string default_generator_state() {
  const auto state = at::detail::getDefaultCPUGenerator().get_state();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

/// What a module consists of, without its memory.
struct Facts {
  std::int64_t parameters = 0;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::set<std::string> kinds;  // of layers
};

Facts facts_of(const torch::nn::Module& module) {
  Facts facts;
  for (const auto& parameter : module.named_parameters()) {
    facts.parameters += parameter.value().numel();
    facts.shapes[parameter.key()] = parameter.value().sizes().vec();
  }
  for (const auto& layer : module.modules()) facts.kinds.insert(layer->name());
  return facts;
}

/// Of the full model; made once, since that takes a second for the large ones.
const Facts& full_facts(const std::string& model) {
  static std::map<std::string, Facts> known;
  if (!known.contains(model)) known[model] = facts_of(*models::make(model, Config::full, 1).module);
  return known[model];
}

}  // namespace

TEST_CASE("the full models have the parameters that the literature gives them") {
  for (const Known& known : literature()) {
    const Facts& facts = full_facts(known.model);
    INFO(known.model);
    CHECK(facts.parameters == known.parameters);
    for (const auto& [name, shape] : known.some) {
      INFO(name);
      REQUIRE(facts.shapes.contains(name));
      CHECK(facts.shapes.at(name) == shape);
    }
  }
}

TEST_CASE("a tiny model has the kinds of layers of the full one") {
  for (const Known& known : literature()) {
    INFO(known.model);
    CHECK(facts_of(*models::make(known.model, Config::tiny).module).kinds ==
          full_facts(known.model).kinds);
  }
}

TEST_CASE("a tied weight is one parameter and gets both gradients") {
  for (const auto& [model, name] : {std::pair{"bert", "bert.embeddings.word_embeddings.weight"},
                                    {"gpt2", "transformer.wte.weight"}}) {
    Task task = models::make(model, Config::tiny);
    const auto batch = task.make_batch(0);
    task.loss(batch).backward();
    const auto gradient = task.module->named_parameters()[name].grad();
    INFO(model);
    // The head's gradient reaches the row of every token, the embedding's only those in the batch.
    CHECK((gradient != 0).any(1).sum().item<std::int64_t>() == gradient.size(0));
  }
}

TEST_CASE("every tiny model learns a batch by heart") {
  for (const auto name : models::names()) {
    Task task = models::make(name, Config::tiny);
    const auto losses = train(task, 24);
    INFO(name << ": first " << losses.front() << ", last " << losses.back());
    CHECK(
        std::all_of(losses.begin(), losses.end(), [](double loss) { return std::isfinite(loss); }));
    CHECK(losses[22] + losses[23] < 0.95 * (losses[0] + losses[1]));
  }
}

TEST_CASE("every parameter of a tiny model gets a gradient") {
  for (const auto name : models::names()) {
    Task task = models::make(name, Config::tiny);
    task.loss(task.make_batch(0)).backward();
    for (const auto& parameter : task.module->named_parameters()) {
      INFO(name << ": " << parameter.key());
      CHECK(parameter.value().grad().defined());
    }
  }
}

TEST_CASE("the same seed gives the same losses, bit for bit, and another seed others") {
  for (const auto name : models::names()) {
    Task first = models::make(name, Config::tiny, 0, 5),
         second = models::make(name, Config::tiny, 0, 5);
    Task other = models::make(name, Config::tiny, 0, 6);
    const auto losses = train(first, 3);
    INFO(name);
    CHECK(losses == train(second, 3));
    CHECK(losses != train(other, 3));
  }
}

TEST_CASE("a batch depends on seed and step alone") {
  for (const auto name : models::names()) {
    const Task task = models::make(name, Config::tiny, 3, 5),
               same = models::make(name, Config::tiny, 3, 5);
    const auto batch = task.make_batch(2);
    torch::manual_seed(99);
    const auto again = same.make_batch(2);
    INFO(name);
    REQUIRE(batch.size() == again.size());
    for (std::size_t i = 0; i < batch.size(); ++i) CHECK(same_bits(batch[i], again[i]));
    CHECK_FALSE(same_bits(batch[0], task.make_batch(3)[0]));
  }
}

TEST_CASE("neither making a model nor making a batch moves the default generator") {
  torch::manual_seed(3);
  const auto before = default_generator_state();
  for (const auto name : models::names()) {
    const Task task = models::make(name, Config::tiny);
    (void)task.make_batch(0);
    INFO(name);
    CHECK(default_generator_state() == before);
  }
}

TEST_CASE("dropout draws new numbers every step") {
  for (const auto* name : {"mlp", "unet", "lstm", "bert", "gpt2", "vit"}) {
    Task task = models::make(name, Config::tiny);
    const auto batch = task.make_batch(0);
    torch::manual_seed(1);
    const auto first = task.loss(batch), second = task.loss(batch);
    INFO(name);
    CHECK_FALSE(same_bits(first, second));
  }
}

TEST_CASE("batch and size are what was asked for, and a size that does not fit is refused") {
  CHECK(models::make("resnet18", Config::tiny, 3, 1, 40).make_batch(0)[0].sizes().vec() ==
        std::vector<std::int64_t>{3, 3, 40, 40});
  CHECK(models::make("bert", Config::tiny, 3, 1, 20).make_batch(0)[0].sizes().vec() ==
        std::vector<std::int64_t>{3, 20});
  CHECK(models::make("lstm", Config::tiny, 3, 1, 20).make_batch(0)[0].sizes().vec() ==
        std::vector<std::int64_t>{20, 3});
  CHECK(models::make("vit", Config::tiny).batch == 4);
  CHECK_THROWS_AS(models::make("bert", Config::full, 1, 1, 513), reprise::Error);
  CHECK_THROWS_AS(models::make("vit", Config::tiny, 1, 1, 17), reprise::Error);
  CHECK_THROWS_AS(models::make("alexnet", Config::tiny), reprise::Error);
  CHECK_THROWS_AS(models::make("mlp", Config::tiny, -1), reprise::Error);
}
