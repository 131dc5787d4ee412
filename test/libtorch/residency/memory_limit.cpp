// A step inside a limit that eager could not run in.

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <reprise_test/eager.hpp>

#include <reprise/graph/diff.hpp>
#include <reprise/libtorch/residency/memory_limit.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::replaying;
using namespace reprise::residency;
using namespace reprise::tensors;
using namespace reprise::training;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

/// A deep narrow net on a large batch: activations are what it needs memory for.
struct Deep : torch::nn::Module {
  Deep() {
    for (int i = 0; i < 24; ++i)
      layers.push_back(register_module(std::to_string(i), torch::nn::Linear(32, 32)));
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) x = torch::dropout(torch::tanh(layer(x)), 0.1, true);
    return x.pow(2).mean();
  }
  std::vector<torch::nn::Linear> layers;
};

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing was thrown";
}

std::shared_ptr<Deep> deep() {
  torch::manual_seed(4);
  return std::make_shared<Deep>();
}

}  // namespace

TEST_CASE("a full disk is an error that says so, and the step's tensors come back") {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 64 << 10;  // the file cannot grow past 64 KiB: as a full disk
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto model = deep();
  const auto x = torch::randn({2048, 32});
  const Bytes base = device_memory().live();
  std::string message;
  try {
    static_cast<void>(capture(
        model, [&](const Tensor& in) { return model->forward(in); },
        CaptureOptions{.memory_limit = base + 2_MiB}, x));
  } catch (const Error& e) {
    message = e.what();
    CHECK(e.code() == Errc::io);
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  CHECK(message.find("cannot write") != std::string::npos);
  model->zero_grad();
  CHECK(device_memory().live() == base);
  CHECK(std::isfinite(x.sum().item<float>()));
  CHECK(std::isfinite(model->forward(x).item<float>()));
}

TEST_CASE("a step is captured inside a quarter of what eager takes, with the same bits") {
  auto eager = deep(), ours = deep();
  const auto x = torch::randn({2048, 32});
  const Bytes base = device_memory().live();
  torch::manual_seed(9);
  device_memory().reset_peak();
  Tensor loss = eager->forward(x);
  loss.backward();
  const Bytes eager_above = device_memory().peak() - base;
  loss = loss.detach();

  const Bytes limit = device_memory().live() + Bytes{eager_above.count / 4};
  torch::manual_seed(9);
  device_memory().reset_peak();
  const auto captured = capture(
      ours, [&](const Tensor& in) { return ours->forward(in); },
      CaptureOptions{.memory_limit = limit}, x);
  CHECK(device_memory().peak() <= limit);
  CHECK(same_bits(captured.loss(), loss));
  for (std::size_t i = 0; i < ours->parameters().size(); ++i)
    CHECK(same_bits(ours->parameters()[i].grad(), eager->parameters()[i].grad()));
  CHECK(captured.transfers().moved_out > 0);
  CHECK(captured.transfers().bytes_in > 0_B);
  CHECK(captured.transfers().bandwidth_out() > 0);
  // E is known without having had the memory
  CHECK(captured.recording().peak - captured.recording().base == eager_above);
}

TEST_CASE(
    "a step whose eager peak is four times the limit, base and all, is captured and profiled "
    "inside it") {
  const auto x = torch::randn({2048, 32});
  std::vector<Tensor> gradients;
  Bytes eager_peak{};
  {
    auto eager = deep();
    torch::manual_seed(9);
    device_memory().reset_peak();
    eager->forward(x).backward();
    eager_peak = device_memory().peak();
    for (const Tensor& p : eager->parameters()) gradients.push_back(p.grad());
  }
  auto ours = deep();
  const Bytes limit{eager_peak.count / 4};
  torch::manual_seed(9);
  device_memory().reset_peak();
  auto captured = capture(
      ours, [&](const Tensor& in) { return ours->forward(in); },
      CaptureOptions{.memory_limit = limit}, x);
  CHECK(device_memory().peak() <= limit);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    CHECK(same_bits(ours->parameters()[i].grad(), gradients[i]));

  ours->zero_grad();
  const Profile profile =
      Profiler<SteadyTimer, AllocatorProbe>{}.run(captured, {.memory_limit = limit});
  CHECK(profile.peak <= limit);
  CHECK(profile.bandwidth_out > 0);
  CHECK(profile.bandwidth_in > 0);
}

TEST_CASE("capturing inside a limit records the same graph as without") {
  auto a = deep(), b = deep();
  const auto x = torch::randn({2048, 32});
  const auto free = capture(
      a, [&](const Tensor& in) { return a->forward(in); }, x);
  const Bytes limit = device_memory().live() + 3_MiB;
  const auto limited = capture(
      b, [&](const Tensor& in) { return b->forward(in); }, CaptureOptions{.memory_limit = limit},
      x);
  REQUIRE(limited.transfers().moved_out > 0);
  const auto difference = diff(free.graph(), limited.graph());
  CHECK_FALSE(difference.has_value());
  for (std::size_t i = 0; i < free.graph().node_count(); ++i)
    CHECK(free.graph().node(NodeId{i}).workspace == limited.graph().node(NodeId{i}).workspace);
}

TEST_CASE("a limit below one op's working set is an error that names the op and the bytes") {
  auto model = deep();
  const auto x = torch::randn({2048, 32});
  const Bytes before = device_memory().live();
  try {
    static_cast<void>(capture(
        model, [&](const Tensor& in) { return model->forward(in); },
        CaptureOptions{.memory_limit = 300_KiB}, x));
    FAIL("the limit should have been too small");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::budget_unreachable);
    CHECK(std::string(e.what()).find("aten::addmm") != std::string::npos);
    CHECK(std::string(e.what()).find("307200 bytes") != std::string::npos);
  }
  model->zero_grad();
  CHECK(device_memory().live() == before);
  CHECK(std::isfinite(x.sum().item<float>()));  // everything is readable again
}

TEST_CASE("a pointer to what is moved out throws and says why") {
  auto a = torch::ones({1 << 18}), b = torch::ones({1 << 18});
  MemoryLimit limit(device_memory().live() + 512_KiB);
  limit.include(a);
  limit.begin_op("test", {b});
  auto c = torch::zeros({1 << 18});
  limit.end_op({c});
  if constexpr (can_watch_host<>) {
    CHECK(message_of([&] { static_cast<void>(a.data_ptr()); }).find("memory limit") !=
          std::string::npos);
    CHECK(message_of([&] { static_cast<void>(a.const_data_ptr()); }).find("memory limit") !=
          std::string::npos);
  }
  limit.begin_op("test", {a});
  CHECK(a.sum().item<float>() == 1 << 18);
}

TEST_CASE("what dies while it is moved out is forgotten, in the counter and in the file") {
  const Bytes base = device_memory().live();
  {
    auto a = torch::ones({1 << 18}), b = torch::ones({1 << 18});
    MemoryLimit limit(device_memory().live());
    limit.include(a);
    limit.begin_op("test", {b});
    auto c = torch::zeros({1 << 18});
    limit.end_op({c});
    CHECK(limit.stats().moved_out == 1);
    CHECK(device_memory().existing() - device_memory().live() == 1_MiB);
    a.reset();
    CHECK(device_memory().existing() == device_memory().live());
  }
  CHECK(device_memory().live() == base);
}

namespace {

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Runs in a child process whose address space may grow by `room` only. Exit codes: 0 as it should
/// be, else what went wrong.
int run_in_little_memory(const std::shared_ptr<Deep>& model, const Tensor& x, Bytes above,
                         float expected) {
  ::malloc_trim(0);
  const rlim_t room = address_space() + static_cast<std::size_t>(above.count) / 2;
  const rlimit limit{room, room};
  ::setrlimit(RLIMIT_AS, &limit);
  torch::manual_seed(9);
  try {
    model->forward(x).backward();
    return 1;  // eager fitted: the limit proves nothing
  } catch (const std::exception&) {
  }
  model->zero_grad();
  torch::manual_seed(9);
  try {
    const CaptureOptions options{.memory_limit = device_memory().live() + Bytes{above.count / 4}};
    const auto captured = capture(
        model, [&](const Tensor& in) { return model->forward(in); }, options, x);
    return captured.loss().item<float>() == expected ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  }
}

}  // namespace

TEST_CASE("where the address space is too small for eager, a step inside a limit runs") {
  auto model = deep();
  const auto x = torch::randn({1 << 16, 32});  // 8 MiB an activation
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);        // so that what is freed is given back
  torch::manual_seed(9);
  const Bytes base = device_memory().live();
  device_memory().reset_peak();
  Tensor loss = model->forward(x);
  loss.backward();
  const Bytes above = device_memory().peak() - base;
  const auto expected = loss.item<float>();
  loss.reset();
  model->zero_grad();

  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // the child has none of our worker threads
  torch::manual_seed(9);
  const auto with_one_thread = model->forward(x).item<float>();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run_in_little_memory(model, x, above, with_one_thread));
  int status = 0;
  ::waitpid(child, &status, 0);
  at::set_num_threads(threads);
  CHECK(std::isfinite(expected));
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
