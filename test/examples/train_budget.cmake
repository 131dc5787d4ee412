# Trains a tiny model inside a budget beside eager, and looks at what the program says about it.
#
#   cmake -D PROGRAM=<train_vit> [-D OTHER=<train_gpt>] -D WORK_DIR=<folder> -P train_budget.cmake
#
# With OTHER also: a plan that was written is run again, and is refused for that program's model.

file(MAKE_DIRECTORY "${WORK_DIR}")
get_filename_component(name "${PROGRAM}" NAME)
set(json "${WORK_DIR}/${name}.budget.json")
set(plan "${WORK_DIR}/${name}.plan.json")
set(both --config tiny --steps 4 --threads 1 --effort 0.3 --compare --json "${json}")
set(common --mode compiled ${both})

# run(<exit code> <program> <argument>...): what it wrote to stderr is then in `err`.
function(run code program)
  execute_process(COMMAND "${program}" ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT result EQUAL code)
    message(FATAL_ERROR "${program} ${ARGN}: exit code ${result}, not ${code}\n${out}${err}")
  endif()
  set(err "${err}" PARENT_SCOPE)
endfunction()

function(load)
  file(READ "${json}" content)
  foreach(field IN LISTS ARGN)
    string(JSON value GET "${content}" ${field})
    set(${field} "${value}" PARENT_SCOPE)
  endforeach()
endfunction()

# check(<condition>): fails and shows the JSON where the condition, given as if() takes it, is not met.
function(check)
  if(${ARGN})
    return()
  endif()
  file(READ "${json}" content)
  list(JOIN ARGN " " condition)
  message(FATAL_ERROR "${name}: not so: ${condition}\n${content}")
endfunction()

run(0 "${PROGRAM}" ${common} --savable 60%)
load(equal peak_bytes predicted_peak_bytes reserved_peak_bytes budget_bytes floor_bytes eager_peak_bytes base_bytes recomputed_nodes
     extra_time_predicted plan_s plans captures replays fallbacks eager_runs
     moved_bytes first_step_moved_bytes first_step_peak_bytes resident_peak_bytes)
check(equal)
check(peak_bytes EQUAL predicted_peak_bytes)
check(NOT peak_bytes GREATER budget_bytes)
check(budget_bytes LESS eager_peak_bytes)
check(floor_bytes LESS budget_bytes)
check(base_bytes LESS floor_bytes)
check(NOT reserved_peak_bytes LESS peak_bytes)
check(recomputed_nodes GREATER 0)
check(extra_time_predicted GREATER 0)
check(plan_s GREATER 0)
check(resident_peak_bytes GREATER 0)
check(captures EQUAL 1 AND replays EQUAL 3)
check(fallbacks EQUAL 0 AND eager_runs EQUAL 0)
check(moved_bytes EQUAL 0 AND first_step_moved_bytes EQUAL 0)

# F + 60 % of (E - F), rounded up: in whole numbers, since math() has no others.
math(EXPR expected "${floor_bytes} + (60 * (${eager_peak_bytes} - ${floor_bytes}) + 99) / 100")
check(budget_bytes EQUAL expected)

set(first_unbounded ${first_step_peak_bytes})

# The same in bytes is known from the start: the first step moves out what does not fit, the following ones nothing.
run(0 "${PROGRAM}" ${common} --budget ${budget_bytes})
load(mode equal peak_bytes predicted_peak_bytes first_step_peak_bytes first_step_moved_bytes moved_bytes recomputed_nodes fallbacks budget_bytes
     floor_bytes)
check(mode STREQUAL "compiled")
check(equal)
check(NOT first_step_peak_bytes GREATER budget_bytes)
if(first_unbounded GREATER budget_bytes)
  check(first_step_moved_bytes GREATER 0)
else()
  check(first_step_moved_bytes EQUAL 0)
endif()
check(NOT peak_bytes GREATER budget_bytes)
check(peak_bytes EQUAL predicted_peak_bytes)
check(recomputed_nodes GREATER 0)
check(moved_bytes EQUAL 0 AND fallbacks EQUAL 0)

# The loop's own code inside the same budget, in bytes and as a share: guided is what a budget gives by itself.
set(compiled_floor ${floor_bytes})
foreach(way IN ITEMS "--budget;${budget_bytes}" "--savable;60%")
  run(0 "${PROGRAM}" ${both} ${way})
  load(mode equal peak_bytes predicted_peak_bytes budget_bytes floor_bytes eager_peak_bytes recomputed_nodes planned_steps online_steps
       brought_back_ops moved_bytes unlimited_peak_bytes)
  check(mode STREQUAL "guided")
  check(equal)
  check(peak_bytes EQUAL predicted_peak_bytes)
  check(NOT peak_bytes GREATER budget_bytes)
  check(floor_bytes EQUAL compiled_floor)
  check(recomputed_nodes GREATER 0)
  check(planned_steps EQUAL 3 AND online_steps EQUAL 1)
  check(unlimited_peak_bytes GREATER peak_bytes)  # also where nobody asked for eager's
  check(moved_bytes EQUAL 0)
endforeach()

if(NOT OTHER)
  return()
endif()

# Three steps run by one plan; before the fourth it may be made again, and the plan that is written is not the one of the highest peak.
run(0 "${PROGRAM}" --mode compiled --config tiny --steps 3 --threads 1 --effort 0.3 --savable 60% --json "${json}" --plan-out "${plan}")
load(peak_bytes recomputed_nodes)
set(planned_peak ${peak_bytes})
set(planned_again ${recomputed_nodes})

run(0 "${PROGRAM}" ${common} --savable 60% --plan-in "${plan}")
load(equal peak_bytes predicted_peak_bytes recomputed_nodes plans)
check(equal)
check(plans EQUAL 0)
check(peak_bytes EQUAL predicted_peak_bytes)
check(peak_bytes EQUAL planned_peak)
check(recomputed_nodes EQUAL planned_again)

run(0 "${PROGRAM}" --config tiny --steps 3 --threads 1 --compare --plan-in "${plan}" --json "${json}")  # a plan needs no budget
load(equal peak_bytes recomputed_nodes)
check(equal)
check(peak_bytes EQUAL planned_peak)
check(recomputed_nodes EQUAL planned_again)

run(1 "${OTHER}" --config tiny --steps 2 --savable 60% --plan-in "${plan}")
if(NOT err MATCHES "was made for another model|the plan is for '")
  message(FATAL_ERROR "${OTHER}: does not say that the plan is another model's:\n${err}")
endif()
run(2 "${PROGRAM}" --config tiny --steps 2 --savable 60% --plan-in "${WORK_DIR}/no-such-plan.json")
