# What must be the same in two places of the tree: SOURCE_DIR, COMPILER, INCLUDES (separated by |).

cmake_policy(VERSION 3.25)

# reprise.hpp brings every header that needs no LibTorch.
string(REPLACE "|" ";" INCLUDES "${INCLUDES}")
list(TRANSFORM INCLUDES PREPEND "-I")
execute_process(
  COMMAND "${COMPILER}" -std=c++20 -M ${INCLUDES} "${SOURCE_DIR}/include/reprise/reprise.hpp"
  OUTPUT_VARIABLE included COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE headers RELATIVE "${SOURCE_DIR}" "${SOURCE_DIR}/include/reprise/*.hpp")
list(FILTER headers EXCLUDE REGEX "^include/reprise/(libtorch|cuda)(/|\\.hpp)")
foreach(header IN LISTS headers)
  string(FIND "${included}" "${header}" place)
  if(place EQUAL -1)
    message(SEND_ERROR "reprise.hpp does not include ${header}, directly or through another: give it a line there")
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
check_shown(docs/policies/timer.md policy_timer.cpp)
check_shown(docs/policies/mem_probe.md policy_mem_probe.cpp)

# A test that is in no list is not run. (test/cuda is compiled and run by scripts/check-cuda.)
file(READ "${SOURCE_DIR}/test/CMakeLists.txt" lists)
file(GLOB_RECURSE tests RELATIVE "${SOURCE_DIR}/test" "${SOURCE_DIR}/test/*.cpp")
list(FILTER tests EXCLUDE REGEX "^(support|consumer|cuda)/")
foreach(test IN LISTS tests)
  string(REGEX REPLACE "^(libtorch|compile_fail)/" "" entry "${test}")
  string(FIND "${lists}" "\n  ${entry}" place)
  if(place EQUAL -1)
    message(SEND_ERROR "test/${test} is in no list of test/CMakeLists.txt")
  endif()
endforeach()
