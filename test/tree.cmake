# What must be the same in two places of the tree: SOURCE_DIR, COMPILER, INCLUDES (separated by |).

cmake_policy(VERSION 3.25)

# Every header that needs no LibTorch is in one place: brought by reprise.hpp, or named in report.hpp, or left to those who ask for it.
string(REPLACE "|" ";" INCLUDES "${INCLUDES}")
list(TRANSFORM INCLUDES PREPEND "-I")
execute_process(
  COMMAND "${COMPILER}" -std=c++20 -M ${INCLUDES} "${SOURCE_DIR}/include/reprise/reprise.hpp"
  OUTPUT_VARIABLE included COMMAND_ERROR_IS_FATAL ANY)
file(READ "${SOURCE_DIR}/include/reprise/report.hpp" report)
set(left_out
  base/free_memory base/one_per_process plan/plan_file                                              # <filesystem>
  graph/json graph/json_records graph/json_text graph/read_graph graph/write_graph                  # nlohmann_json
  profile/transfer_times
  graph/alive_during graph/dependency_order                                                         # for who asks
  plan/buffers_of pack/assign_offsets pack/first_fit pack/hole_list pack/page_give_backs           # arenas
  pack/skyline pack/learned_addresses
  plan/step_plans plan/advice plan/background_planner plan/eviction base/flat_index                 # executors
  plan/followed_plan plan/shares plan/plan_search plan/replanner plan/turns pipeline/stages base/free_heap)
file(GLOB_RECURSE headers RELATIVE "${SOURCE_DIR}/include/reprise" "${SOURCE_DIR}/include/reprise/*.hpp")
list(FILTER headers EXCLUDE REGEX "^(libtorch|cuda)(/|\\.hpp)")
list(REMOVE_ITEM headers report.hpp)
foreach(dear IN ITEMS nlohmann/json.hpp c++/filesystem bits/fs_path.h)
  string(FIND "${included}" "${dear}" place)
  if(NOT place EQUAL -1)
    message(SEND_ERROR "reprise.hpp includes ${dear}: see what it costs with bench/compile_time, and keep it where it is used")
  endif()
endforeach()
foreach(header IN LISTS headers)
  set(places "")
  string(FIND "${included}" "include/reprise/${header}" place)
  if(NOT place EQUAL -1)
    list(APPEND places "brought by reprise.hpp")
  endif()
  string(FIND "${report}" "#include <reprise/${header}>" place)
  if(NOT place EQUAL -1)
    list(APPEND places "named in report.hpp")
  endif()
  string(REGEX REPLACE "\\.hpp$" "" name "${header}")
  if(name IN_LIST left_out)
    list(APPEND places "in test/tree.cmake's list of what is left out")
  endif()
  list(LENGTH places count)
  if(NOT count EQUAL 1)
    message(SEND_ERROR "${header} must be brought by reprise.hpp, or be named in report.hpp, or be in the list of what is left out; it is: ${places}")
  endif()
endforeach()

# Pages show programs that are compiled and run, as they are.
function(check_shown page program)
  file(READ "${SOURCE_DIR}/${page}" text)
  file(READ "${SOURCE_DIR}/examples/${program}" code)
  string(FIND "${code}" "#include" start)
  string(SUBSTRING "${code}" ${start} -1 code)
  string(FIND "${text}" "```cpp\n${code}```\n" place)
  if(place EQUAL -1)
    message(SEND_ERROR "${page} does not show examples/${program} as it is")
  endif()
endfunction()
check_shown(README.md quickstart.cpp)
check_shown(docs/profiler.md profile_step.cpp)
check_shown(docs/checkpoint.md checkpoint.cpp)
check_shown(docs/report.md report_graph.cpp)
foreach(policy IN ITEMS graph cost_model strategy backend)
  check_shown(docs/policies/${policy}.md policy_${policy}.cpp)
endforeach()
check_shown(docs/policies/timer.md policy_timer.cpp)
check_shown(docs/policies/mem_probe.md policy_mem_probe.cpp)
check_shown(docs/policies/eviction.md policy_eviction.cpp)
check_shown(docs/policies/step_memory.md policy_step_memory.cpp)
check_shown(docs/policies/pipeline.md custom_pipeline.cpp)
check_shown(docs/policies/observer.md policy_observer.cpp)
check_shown(docs/graph.md read_graph.cpp)

# docs/api.md has every public name.
find_program(PYTHON python3)
if(PYTHON)
  execute_process(COMMAND "${PYTHON}" "${SOURCE_DIR}/scripts/api" --check RESULT_VARIABLE failed ERROR_VARIABLE said)
  if(failed)
    message(SEND_ERROR "${said}")
  endif()
endif()

# The README's diff is what examples/any_loop.cpp has: without the lines that are added, and with them.
file(READ "${SOURCE_DIR}/README.md" readme)
file(READ "${SOURCE_DIR}/examples/any_loop.cpp" code)
string(REGEX MATCH "```diff\n([^`]*)```" block "${readme}")
set(with "${CMAKE_MATCH_1}")
string(REGEX REPLACE "\n[+][^\n]*" "" without "\n${with}")
foreach(lines IN ITEMS "\n${with}" "${without}")
  string(REGEX REPLACE "\n[+ ]" "\n" lines "${lines}")
  string(FIND "${code}" "${lines}" place)
  if(place EQUAL -1 OR "${with}" STREQUAL "")
    message(SEND_ERROR "README.md's diff is not what examples/any_loop.cpp has:${lines}")
  endif()
endforeach()

# The README is read in one go.
string(REGEX MATCHALL "\n" lines "${readme}")
list(LENGTH lines length)
if(length GREATER 119)
  message(SEND_ERROR "README.md has ${length} lines; at most 119")
endif()

# Whoever links the LibTorch side has to ask for it: a plain find_package(reprise) does not bring it.
file(GLOB pages "${SOURCE_DIR}/README.md" "${SOURCE_DIR}/docs/*.md")
foreach(page IN LISTS pages)
  file(READ "${page}" text)
  string(REPLACE ";" "@" text "${text}")
  string(REGEX MATCHALL "```cmake\n[^`]*```" blocks "${text}")
  foreach(block IN LISTS blocks)
    string(REGEX MATCH "find_package[(]reprise[^)]*[)]" asked "${block}")
    if(block MATCHES "target_link_libraries[^)]*reprise::libtorch" AND asked AND NOT asked MATCHES "COMPONENTS libtorch")
      message(SEND_ERROR "${page} links reprise::libtorch after ${asked}, which does not bring it")
    endif()
  endforeach()
endforeach()

# docs/troubleshooting.md explains messages that there are: each heading is a part of one.
file(GLOB_RECURSE sources "${SOURCE_DIR}/include/reprise/*.hpp")
set(all_code "")
foreach(source IN LISTS sources)
  file(READ "${source}" code)
  string(REGEX REPLACE "\"[ \n]+\"" "" code "${code}")  # a text may go on in the next literal
  string(APPEND all_code "${code}")
endforeach()
file(READ "${SOURCE_DIR}/docs/troubleshooting.md" rest)
set(explained 0)
while(TRUE)
  string(FIND "${rest}" "\n### `" start)
  if(start EQUAL -1)
    break()
  endif()
  math(EXPR start "${start} + 6")
  string(SUBSTRING "${rest}" ${start} -1 rest)
  string(FIND "${rest}" "`\n" end)
  string(SUBSTRING "${rest}" 0 ${end} message)
  string(FIND "${all_code}" "${message}" place)
  if(place EQUAL -1)
    message(SEND_ERROR "docs/troubleshooting.md explains '${message}', which no header says")
  endif()
  math(EXPR explained "${explained} + 1")
endwhile()
if(explained LESS 30)
  message(SEND_ERROR "docs/troubleshooting.md explains only ${explained} messages")
endif()

# And it explains all that there are: of each error and notice, the beginning or the end of some part of its text stands there.
# (Characters that CMake's lists do not bear are replaced on both sides.)
function(plain_text variable)
  string(REGEX REPLACE "\n[ ]*//[^\n]*" "" text "${${variable}}")
  string(REPLACE ";" "@" text "${text}")
  string(REPLACE "[" "(" text "${text}")
  string(REPLACE "]" ")" text "${text}")
  string(REPLACE "\\" "/" text "${text}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()
file(READ "${SOURCE_DIR}/docs/troubleshooting.md" page)
plain_text(page)
set(messages 0)
foreach(source IN LISTS sources)
  file(READ "${source}" code)
  plain_text(code)
  string(REGEX MATCHALL "(Errc::[a-z_]+,|notice\\()[^@]*@" thrown "${code}")
  foreach(statement IN LISTS thrown)
    string(REGEX MATCHALL "\"[^\"]+(\"|@)" parts "${statement}")
    set(found "")
    foreach(part IN LISTS parts)
      string(LENGTH "${part}" length)
      math(EXPR length "${length} - 2")
      if(length LESS 8)
        continue()
      endif()
      if(found STREQUAL "")
        set(found NO)
        math(EXPR messages "${messages} + 1")
      endif()
      string(SUBSTRING "${part}" 1 ${length} part)
      set(taken 24)
      if(length LESS 24)
        set(taken ${length})
      endif()
      math(EXPR rest "${length} - ${taken}")
      string(SUBSTRING "${part}" 0 ${taken} head)
      string(SUBSTRING "${part}" ${rest} ${taken} tail)
      foreach(text IN ITEMS "${head}" "${tail}")
        string(STRIP "${text}" text)
        string(FIND "${page}" "${text}" place)
        if(NOT place EQUAL -1)
          set(found YES)
        endif()
      endforeach()
    endforeach()
    if(found STREQUAL "NO")
      message(SEND_ERROR "${source}: docs/troubleshooting.md does not explain\n${statement}")
    endif()
  endforeach()
endforeach()
if(messages LESS 100)
  message(SEND_ERROR "only ${messages} errors and notices were found in the headers: how they are looked for is out of date")
endif()

# What the packages ask their users for is what the headers include, and nothing else.
file(STRINGS "${SOURCE_DIR}/cmake/reprise-config.cmake.in" asked REGEX "^ *find_dependency\\(")
list(TRANSFORM asked REPLACE "^ *find_dependency\\(([^ )]*).*" "\\1")
set(folder_of_Boost boost)
set(folder_of_range-v3 range)
set(folder_of_nlohmann_json nlohmann)
set(folders reprise ATen c10 torch caffe2 cuda sys linux)
foreach(package IN LISTS asked)
  if(NOT all_code MATCHES "#include <${folder_of_${package}}/")
    message(SEND_ERROR "reprise-config.cmake.in asks for ${package}, of which no header includes anything")
  endif()
  list(APPEND folders "${folder_of_${package}}")
endforeach()
string(REGEX MATCHALL "#include <[^/>\n]+/" includes "${all_code}")
list(TRANSFORM includes REPLACE "#include <(.*)/" "\\1")
list(REMOVE_DUPLICATES includes)
list(REMOVE_ITEM includes ${folders})
if(includes)
  message(SEND_ERROR "headers include what reprise-config.cmake.in does not ask for: ${includes}")
endif()

# Each header of the LibTorch side is taken in hand alone by the test of the same name, or it is in this list: with the reason
# why it cannot be, or the tests that it is seen by.
set(not_alone
  # what is only told, and decides nothing
  "guided/step_counters" "options/(memory_budget|step)_options" "options/run_options" "record/op_meter" "record/recorder_hooks"
  "train_step/step_stages"
  # needs no LibTorch: replay/policies.cpp
  "replay/(observer|step_memory)"
  # the fronts, and what cannot run without a whole step of theirs: checkpoint.cpp; memory_budget.cpp, guided*.cpp,
  # training_loops.cpp and wild/; train_step.cpp, random_programs.cpp
  "(checkpoint|checkpointed|memory_budget|train_step)" "checkpoint/.*"
  "guided/(call_runner|guided_step|occurrence_runner|online_eviction|op_notes|plan_choice)"
  "guided/(pointer_access|rematerializer|step_parts)"
  "train_step/(known_step|replay_runner|step_capture|step_check|step_engine|step_meter|step_planning)"
  "residency/storage_events"                                   # residency/residency.cpp
  "guided/(guided_meter|known_sequences|slow_steps)"           # reports.cpp, memory_budget.cpp, tight_budgets.cpp
  "guided/summand_donation" "device/block_donation"        # record/gradient_sums.cpp
  "device/cpu/(block_header|block_keepers|counted_blocks|cpu_memory|heap_blocks|in_place_blocks|memory_counter|thread_hooks)"
  "device/cpu/fault_handler"                                   # device/cpu/protected_blocks.cpp, wild/pointers.cpp
  "device/interface/(block_roles|byte_counter|memory_counter|step_bytes)"  # device/cpu/counting_allocator.cpp, page_blocks.cpp
  "options/(reports|step_report)"                              # reports.cpp, options/summaries.cpp
  "pipeline/(default_pipeline|measured_ops)"                   # examples/custom_pipeline.cpp, profiler.cpp
  "replay/(isolated_ops|step_observer|step_runner)"            # profiler.cpp
  "replay/(libtorch_backend|program)"                          # record/capture.cpp, random_programs.cpp
  "record/(chunks|kept_geometries)"                            # record/recorded_bytes.cpp
  "torch/(autocast|module_state)"                                         # train_step/signature.cpp
)
file(GLOB_RECURSE headers RELATIVE "${SOURCE_DIR}/include/reprise/libtorch" "${SOURCE_DIR}/include/reprise/libtorch/*.hpp")
foreach(header IN LISTS headers)
  string(REGEX REPLACE "[.]hpp$" "" name "${header}")
  set(alone NO)
  if(EXISTS "${SOURCE_DIR}/test/libtorch/${name}.cpp")
    set(alone YES)
  endif()
  foreach(pattern IN LISTS not_alone)
    if(name MATCHES "^${pattern}$")
      set(alone YES)
      list(APPEND used "${pattern}")
    endif()
  endforeach()
  if(NOT alone)
    message(SEND_ERROR "include/reprise/libtorch/${header} has no test/libtorch/${name}.cpp, and is not in test/tree.cmake's list of what cannot be taken alone")
  endif()
endforeach()
list(REMOVE_ITEM not_alone ${used})
if(not_alone)
  message(SEND_ERROR "test/tree.cmake has names of headers that there are not: ${not_alone}")
endif()

# A test that is in no list is not run. (test/cuda is compiled and run by scripts/check-cuda.)
file(READ "${SOURCE_DIR}/test/CMakeLists.txt" lists)
file(GLOB_RECURSE tests RELATIVE "${SOURCE_DIR}/test" "${SOURCE_DIR}/test/*.cpp")
list(FILTER tests EXCLUDE REGEX "^(support|consumer|cuda)/")
foreach(test IN LISTS tests)
  string(REGEX REPLACE "^(libtorch|compile_fail)/" "" entry "${test}")
  string(FIND "${lists}" "\n  ${entry}" place)
  if(place EQUAL -1)  # what of libtorch/ needs no LibTorch is among the tests of the core
    string(FIND "${lists}" "\n  ${test}" place)
  endif()
  if(place EQUAL -1)
    message(SEND_ERROR "test/${test} is in no list of test/CMakeLists.txt")
  endif()
endforeach()
