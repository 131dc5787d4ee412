#pragma once
// The smallest models of CostModel, Strategy, EvictionPolicy and AnalysisStage: what compiles with
// these asks for no more than the concepts do. None is made out of nothing, and none is copied but
// the eviction policy, of which each step has a copy.

#include <cstdint>
#include <optional>
#include <string_view>

#include <reprise/pipeline/analysis_stage.hpp>
#include <reprise/plan/concepts.hpp>
#include <reprise/plan/eviction.hpp>

namespace reprise_test {

class CostModelArchetype {
 public:
  explicit CostModelArchetype(int) {}
  CostModelArchetype(CostModelArchetype&&) = default;
  CostModelArchetype& operator=(CostModelArchetype&&) = default;

  reprise::Microseconds time(const reprise::StepGraph&, reprise::NodeId) const { return {1}; }
};
static_assert(reprise::CostModel<CostModelArchetype>);

class StrategyArchetype {
 public:
  explicit StrategyArchetype(int) {}
  StrategyArchetype(StrategyArchetype&&) = default;
  StrategyArchetype& operator=(StrategyArchetype&&) = default;

  const char* name() const { return "archetype"; }
  reprise::Schedule schedule(const reprise::StepGraph& graph, const reprise::PlanRequest&) const {
    return reprise::own_order(graph);
  }
};
static_assert(reprise::Strategy<StrategyArchetype>);

class EvictionArchetype {
 public:
  explicit EvictionArchetype(int) {}

  void touch(std::uint32_t, const reprise::EvictionCandidate&) {}
  void erase(std::uint32_t) {}
  std::optional<std::uint32_t> pick(std::uint64_t, bool (*)(std::uint32_t)) const {
    return std::nullopt;
  }
};
static_assert(reprise::EvictionPolicy<EvictionArchetype>);

class AnalysisArchetype {
 public:
  explicit AnalysisArchetype(int) {}
  AnalysisArchetype(AnalysisArchetype&&) = default;
  AnalysisArchetype& operator=(AnalysisArchetype&&) = default;

  reprise::StepAnalysis analyse(const reprise::StepGraph&) const { return {}; }
};
static_assert(reprise::AnalysisStage<AnalysisArchetype>);

}  // namespace reprise_test
