// Each requirement of each concept: a model that lacks it and nothing else is refused by the one
// line that names it. (cmake/run_compile_fail.cmake looks for what stands behind "refused: ", and
// for nothing else.)

#include <reprise/libtorch/replay/observer.hpp>
#include <reprise/libtorch/replay/step_memory.hpp>
#include <reprise/profile/concepts.hpp>
#include <reprise/rewrite/concepts.hpp>
#include <reprise_test/backend_archetype.hpp>
#include <reprise_test/plan_archetypes.hpp>
#include <reprise_test/profile_archetypes.hpp>
#include <reprise_test/step_archetypes.hpp>

using namespace reprise_test;
using reprise::Bytes;
using reprise::Microseconds;
using reprise::NodeId;
using reprise::Schedule;
using reprise::StepGraph;

/// A model whose function Lacking takes away; the model itself if nothing is taken.
#ifdef REPRISE_MUST_NOT_COMPILE
template <class Model, class Lacking>
using Without = Lacking;
#else
template <class Model, class Lacking>
using Without = Model;
#endif

template <class Model>
struct Unmovable : Model {
  Unmovable(Unmovable&&) = delete;
};

struct TimerWithoutBegin : TimerArchetype {
  void begin_run(std::size_t) = delete;
};
struct TimerWithoutStart : TimerArchetype {
  void start(std::size_t) = delete;
};
struct TimerWithoutStop : TimerArchetype {
  void stop(std::size_t) = delete;
};
struct TimerOfOneTime : TimerArchetype {
  static Microseconds end_run() { return {}; }
};

struct ProbeWithoutBegin : MemProbeArchetype {
  void begin_run() = delete;
};
struct ProbeWithoutOp : MemProbeArchetype {
  void begin_op() = delete;
};
struct ProbeOfOneNumber : MemProbeArchetype {
  static Bytes end_op() { return {}; }
};
struct ProbeWithoutPeak : MemProbeArchetype {
  void end_run() {}
};

struct WholeRunner {
  StepGraph nodes{};
  const StepGraph& graph() const { return nodes; }
  template <class Around>
  void run(Around) {}
  void complete(reprise::Profile&) {}
};
struct RunnerWithoutGraph : WholeRunner {
  void graph() const {}
};
struct RunnerWithoutRun : WholeRunner {
  void run() {}
};
struct RunnerWithoutComplete : WholeRunner {
  void complete(int) = delete;
};
template <class Runner>
struct StepWith {};
template <class Runner>
Runner make_runner(StepWith<Runner>&, const reprise::ProfileOptions&) {
  return {};
}
struct StepWithoutRunner {};

struct CostWithoutTime {};
struct StrategyWithoutName : StrategyArchetype {
  void name() const {}
};
struct StrategyWithoutSchedule : StrategyArchetype {
  void schedule(const StepGraph&, const reprise::PlanRequest&) const {}
};

struct ImmovableProgram {
  ImmovableProgram() = default;
  ImmovableProgram(ImmovableProgram&&) = delete;
};
struct BackendWithoutProgram : BackendArchetype {
  using Program = ImmovableProgram;
  Program compile(const StepGraph&, const reprise::Rewriting&) const { return {}; }
};
struct BackendWithoutCompile : BackendArchetype {
  void compile(const StepGraph&, const reprise::Rewriting&) const {}
};

struct AnalysisOfOneNumber : AnalysisArchetype {
  Bytes analyse(const StepGraph&) const { return {}; }
};

struct EvictionOnce : EvictionArchetype {
  EvictionOnce(const EvictionOnce&) = delete;
};
struct EvictionWithoutTouch : EvictionArchetype {
  void touch() {}
};
struct EvictionWithoutErase : EvictionArchetype {
  void erase() {}
};
struct EvictionWithoutPick : EvictionArchetype {
  void pick() const {}
};

struct MemoryWithoutPlans : StepMemoryArchetype {
  static constexpr struct Unknown { } plans_addresses{}; };
struct MemoryWithoutStart : StepMemoryArchetype {
  void start() {}
};
struct MemoryWithoutEnd : StepMemoryArchetype {
  void end() = delete;
};
struct MemoryWithoutHandOver : StepMemoryArchetype {
  void hand_over() {}
};
struct MemoryWithoutSettle : StepMemoryArchetype {
  void settle() = delete;
};
struct MemoryWithoutRelease : StepMemoryArchetype {
  void release() = delete;
};
struct MemoryWithoutCapacity : StepMemoryArchetype {
  void capacity() {}
};
struct MemoryWithoutUse : StepMemoryArchetype {
  void use() {}
};

struct ObserverWithoutBefore : ObserverArchetype {
  void before() {}
};
struct ObserverWithoutAfter : ObserverArchetype {
  void after() {}
};

int main() {
  using namespace reprise;
  using T = TimerArchetype;
  // refused: T is no Timer: it needs (1) to be movable
  bool all = profiling::is_timer<Without<T, Unmovable<T>>>();
  // refused: T is no Timer: it needs (2) void begin_run(std::size_t n)
  all &= profiling::is_timer<Without<T, TimerWithoutBegin>>();
  // refused: T is no Timer: it needs (3) void start(std::size_t i)
  all &= profiling::is_timer<Without<T, TimerWithoutStart>>();
  // refused: T is no Timer: it needs (4) void stop(std::size_t i)
  all &= profiling::is_timer<Without<T, TimerWithoutStop>>();
  // refused: T is no Timer: it needs (5) std::vector<Microseconds> end_run()
  all &= profiling::is_timer<Without<T, TimerOfOneTime>>();

  using P = MemProbeArchetype;
  // refused: P is no MemProbe: it needs (1) to be movable
  all &= profiling::is_mem_probe<Without<P, Unmovable<P>>>();
  // refused: P is no MemProbe: it needs (2) void begin_run()
  all &= profiling::is_mem_probe<Without<P, ProbeWithoutBegin>>();
  // refused: P is no MemProbe: it needs (3) void begin_op()
  all &= profiling::is_mem_probe<Without<P, ProbeWithoutOp>>();
  // refused: P is no MemProbe: it needs (4) MemorySample end_op()
  all &= profiling::is_mem_probe<Without<P, ProbeOfOneNumber>>();
  // refused: P is no MemProbe: it needs (5) Bytes end_run()
  all &= profiling::is_mem_probe<Without<P, ProbeWithoutPeak>>();

  using S = StepWith<WholeRunner>;
  // refused: S is no ProfilableStep: it needs (1) make_runner(S&, const ProfileOptions&)
  all &= profiling::is_profilable_step<Without<S, StepWithoutRunner>>();
  // refused: S is no ProfilableStep: its runner needs (2) const StepGraph& graph()
  all &= profiling::is_profilable_step<Without<S, StepWith<RunnerWithoutGraph>>>();
  // refused: S is no ProfilableStep: its runner needs (3) void run(around)
  all &= profiling::is_profilable_step<Without<S, StepWith<RunnerWithoutRun>>>();
  // refused: S is no ProfilableStep: its runner needs (4) void complete(Profile&)
  all &= profiling::is_profilable_step<Without<S, StepWith<RunnerWithoutComplete>>>();

  using C = CostModelArchetype;
  // refused: C is no CostModel: it needs (1) Microseconds time(const StepGraph&, NodeId) const
  all &= planning::is_cost_model<Without<C, CostWithoutTime>>();

  using Y = StrategyArchetype;
  // refused: S is no Strategy: it needs (1) std::string_view name() const
  all &= planning::is_strategy<Without<Y, StrategyWithoutName>>();
  // refused: S is no Strategy: it needs (2) Schedule schedule(const StepGraph&, const
  all &= planning::is_strategy<Without<Y, StrategyWithoutSchedule>>();

  using B = BackendArchetype;
  // refused: B is no GraphBackend: it needs (1) a movable type B::Program
  all &= rewriting::is_graph_backend<Without<B, BackendWithoutProgram>>();
  // refused: B is no GraphBackend: it needs (2) Program compile(const StepGraph&, const
  all &= rewriting::is_graph_backend<Without<B, BackendWithoutCompile>>();

  using A = AnalysisArchetype;
  // refused: A is no AnalysisStage: it needs (1) to be movable
  all &= pipelines::is_analysis_stage<Without<A, Unmovable<A>>>();
  // refused: A is no AnalysisStage: it needs (2) StepAnalysis analyse(const StepGraph&) const
  all &= pipelines::is_analysis_stage<Without<A, AnalysisOfOneNumber>>();

  using E = EvictionArchetype;
  // refused: P is no EvictionPolicy: it needs (1) to be copyable
  all &= is_eviction_policy<Without<E, EvictionOnce>>();
  // refused: P is no EvictionPolicy: it needs (2) touch(std::uint32_t, const EvictionCandidate&)
  all &= is_eviction_policy<Without<E, EvictionWithoutTouch>>();
  // refused: P is no EvictionPolicy: it needs (3) erase(std::uint32_t)
  all &= is_eviction_policy<Without<E, EvictionWithoutErase>>();
  // refused: P is no EvictionPolicy: it needs (4) std::optional<std::uint32_t> pick(std::uint64_t
  all &= is_eviction_policy<Without<E, EvictionWithoutPick>>();

  using M = StepMemoryArchetype;
  // refused: M is no StepMemory: it needs (1) to be movable
  all &= replaying::is_step_memory<Without<M, Unmovable<M>>>();
  // refused: M is no StepMemory: it needs (2) static constexpr bool plans_addresses
  all &= replaying::is_step_memory<Without<M, MemoryWithoutPlans>>();
  // refused: M is no StepMemory: it needs (3) void start(const ArenaLayout&)
  all &= replaying::is_step_memory<Without<M, MemoryWithoutStart>>();
  // refused: M is no StepMemory: it needs (4) void begin(std::size_t i) and void end()
  all &= replaying::is_step_memory<Without<M, MemoryWithoutEnd>>();
  // refused: M is no StepMemory: it needs (5) void hand_over(const std::vector<at::Tensor>&)
  all &= replaying::is_step_memory<Without<M, MemoryWithoutHandOver>>();
  // refused: M is no StepMemory: it needs (6) void settle()
  all &= replaying::is_step_memory<Without<M, MemoryWithoutSettle>>();
  // refused: M is no StepMemory: it needs (7) void release()
  all &= replaying::is_step_memory<Without<M, MemoryWithoutRelease>>();
  // refused: M is no StepMemory: it needs (8) Bytes capacity()
  all &= replaying::is_step_memory<Without<M, MemoryWithoutCapacity>>();
  // refused: M is no StepMemory: it needs (9) ArenaUse use()
  all &= replaying::is_step_memory<Without<M, MemoryWithoutUse>>();

  using O = ObserverArchetype;
  // refused: O is no Observer: it needs (1) void before(std::size_t i, NodeId, const auto& tensors)
  all &= is_observer<Without<O, ObserverWithoutBefore>>();
  // refused: O is no Observer: it needs (2) void after(std::size_t i, NodeId, const auto& tensors)
  all &= is_observer<Without<O, ObserverWithoutAfter>>();
  return all ? 0 : 1;
}
