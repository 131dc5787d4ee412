// What is known of an operator from its schema, its tags, and from nowhere.

#include <torch/torch.h>

#include <torch/library.h>

#include <string>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/op_facts.hpp>

using namespace reprise::tensors;

namespace {

const OpFacts& facts(const char* name, const char* overload = "") {
  return facts_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

using Flags = std::vector<bool>;

void define_once() {
  static auto* library = [] {
    auto* made = new torch::Library(torch::Library::FRAGMENT, "facts_test", std::nullopt, __FILE__,
                                    __LINE__);
    made->def("unmarked(Tensor x) -> Tensor");
    made->def("marked(Tensor(a!) x) -> Tensor(a!)");
    made->def("pure(Tensor x) -> Tensor");
    made->def("measure(Tensor x) -> float");
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace

TEST_CASE("the schema says what an op writes, and how much it returns", "[op_facts]") {
  CHECK(facts("aten::relu_").name == "aten::relu_");
  CHECK(facts("aten::relu_").writes == Flags{true});
  CHECK(facts("aten::add", "Tensor").writes == Flags{false, false, false});
  CHECK(facts("aten::add", "out").writes == Flags{false, false, false, true});
  CHECK(facts("aten::native_layer_norm").returns == 3);
  CHECK(&facts("aten::relu_") == &facts("aten::relu_"));
}

TEST_CASE("what the schema does not say: running statistics, rrelu's noise", "[op_facts]") {
  const OpFacts& norm = facts("aten::native_batch_norm");
  CHECK(norm.writes == Flags(8, false));
  CHECK(norm.statistics == std::vector<std::size_t>{3, 4});
  CHECK(norm.training == 5);
  CHECK(norm.moves_statistics());
  CHECK_FALSE(facts("aten::native_batch_norm_backward").moves_statistics());
  CHECK_FALSE(facts("aten::_native_batch_norm_legit").moves_statistics());  // its schema says it
  CHECK(facts("aten::rrelu_with_noise").writes[1]);
  CHECK_FALSE(facts("aten::rrelu_with_noise_backward").writes[2]);
}

TEST_CASE("the tags say what is random, depends on data, or goes to the host", "[op_facts]") {
  CHECK(facts("aten::bernoulli").random);
  CHECK_FALSE(facts("aten::relu").random);
  CHECK(facts("aten::nonzero").dynamic_shape);
  CHECK_FALSE(facts("aten::relu").dynamic_shape);
  for (const char* name : {"aten::_local_scalar_dense", "aten::equal"}) {
    CHECK(facts(name).returns_host_value);
    CHECK_FALSE(facts(name).repeatable);
    CHECK_FALSE(facts(name).about_shapes_only);
  }
  CHECK(facts("aten::is_same_size").about_shapes_only);
  CHECK_FALSE(facts("aten::is_same_size").returns_host_value);
  CHECK_FALSE(facts("aten::relu").about_shapes_only);
  CHECK(facts("aten::_ctc_loss").hands_lengths_to_host);
  CHECK_FALSE(facts("aten::_ctc_loss").read_by_host);
  CHECK(facts("aten::_pack_padded_sequence").read_by_host);
  CHECK_FALSE(facts("aten::_pack_padded_sequence").repeatable);
}

TEST_CASE("views, empty tensors, copies and files are known as such", "[op_facts]") {
  CHECK(facts("aten::view").views_only);
  CHECK_FALSE(facts("aten::relu_").views_only);
  CHECK_FALSE(facts("aten::clone").views_only);
  CHECK(facts("aten::new_empty").unfilled);
  CHECK(facts("aten::resize_").unfilled);
  CHECK_FALSE(facts("aten::new_zeros").unfilled);
  for (const char* name : {"aten::clone", "aten::_to_copy", "aten::new_zeros", "aten::ones_like"})
    CHECK(facts(name).user_may_fill_result);
  CHECK_FALSE(facts("aten::relu").user_may_fill_result);
  CHECK(facts("aten::_lazy_clone").copies_lazily);
  CHECK_FALSE(facts("aten::_lazy_clone").repeatable);
  CHECK_FALSE(facts("aten::set_", "source_Tensor").repeatable);
  CHECK(facts("aten::mm").repeatable);
}

TEST_CASE(
    "another library's op may write all that it is given, unless it is marked or declared pure",
    "[op_facts]") {
  define_once();
  assume_pure("facts_test::pure");
  CHECK(facts("facts_test::unmarked").may_write);
  CHECK_FALSE(facts("facts_test::unmarked").repeatable);
  CHECK_FALSE(facts("facts_test::unmarked").builtin);
  CHECK_FALSE(facts("facts_test::marked").may_write);
  CHECK(facts("facts_test::marked").writes == Flags{true});
  CHECK_FALSE(facts("facts_test::marked").repeatable);
  CHECK_FALSE(facts("facts_test::pure").may_write);
  CHECK(facts("facts_test::pure").repeatable);
  CHECK(facts("facts_test::measure").returns_host_value);
  CHECK_FALSE(facts("aten::mm").may_write);
}
