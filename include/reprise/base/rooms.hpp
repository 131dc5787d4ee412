#pragma once
// Rooms are the folders of include/reprise: this header says which room sees the names of which
// others.
//
//   reprise::                 names that users write: docs/api.md lists them
//   reprise::planning::       names of the room plan/: for readers and authors of extensions
// Each folder of include/reprise is a room with its own namespace. A header exports its public
// names into reprise at its end. A room sees the names of the rooms below it, by the same table as
// for includes (test/layers.cmake). There are two exceptions: pipeline/ and libtorch/pipeline/
// share a namespace, and the front headers see all rooms.
// namespace, and the front headers see all rooms.

namespace reprise {

namespace base {}
namespace packing {}
namespace graphs {}
namespace profiling {}
namespace planning {}
namespace rewriting {}
namespace pipelines {}
namespace reporting {}
namespace cuda {}
namespace cpu {}
namespace tensors {}
namespace residency {}
namespace recording {}
namespace replaying {}
namespace options {}
namespace checkpointing {}
namespace guided {}
namespace training {}
namespace fronts {}

namespace packing {
using namespace base;
}
namespace graphs {
using namespace base;
}
namespace profiling {
using namespace base;
using namespace graphs;
}  // namespace profiling
namespace planning {
using namespace graphs;
using namespace base;
using namespace packing;
}  // namespace planning
namespace rewriting {
using namespace base;
using namespace graphs;
}  // namespace rewriting
namespace pipelines {
using namespace base;
using namespace graphs;
using namespace profiling;
using namespace planning;
using namespace rewriting;
using namespace tensors;
using namespace recording;
using namespace replaying;
using namespace options;
}  // namespace pipelines
namespace reporting {
using namespace base;
using namespace graphs;
using namespace profiling;
using namespace rewriting;
}  // namespace reporting
namespace cuda {
using namespace base;
using namespace profiling;
}  // namespace cuda
namespace cpu {
using namespace base;
using namespace packing;
}  // namespace cpu
namespace tensors {
using namespace base;
using namespace profiling;
using namespace cpu;
}  // namespace tensors
namespace residency {
using namespace base;
using namespace cpu;
using namespace tensors;
}  // namespace residency
namespace recording {
using namespace base;
using namespace graphs;
using namespace cpu;
using namespace tensors;
using namespace residency;
}  // namespace recording
namespace replaying {
using namespace base;
using namespace packing;
using namespace graphs;
using namespace profiling;
using namespace rewriting;
using namespace cpu;
using namespace tensors;
using namespace residency;
using namespace recording;
}  // namespace replaying
namespace options {
using namespace base;
using namespace profiling;
using namespace planning;
using namespace reporting;
}  // namespace options
namespace checkpointing {
using namespace base;
using namespace tensors;
}  // namespace checkpointing
namespace guided {
using namespace base;
using namespace planning;
using namespace cpu;
using namespace tensors;
using namespace residency;
using namespace recording;
using namespace options;
}  // namespace guided
namespace training {
using namespace base;
using namespace graphs;
using namespace profiling;
using namespace planning;
using namespace rewriting;
using namespace cpu;
using namespace tensors;
using namespace recording;
using namespace replaying;
using namespace options;
using namespace pipelines;
}  // namespace training
namespace fronts {
using namespace base;
using namespace packing;
using namespace graphs;
using namespace profiling;
using namespace planning;
using namespace rewriting;
using namespace pipelines;
using namespace reporting;
using namespace cuda;
using namespace cpu;
using namespace tensors;
using namespace residency;
using namespace recording;
using namespace replaying;
using namespace options;
using namespace checkpointing;
using namespace guided;
using namespace training;
}  // namespace fronts

}  // namespace reprise
