# The CMakeLists.txt that docs/install.md shows, configured as they stand there, with what the page says of main.cpp, <prefix> and
# <archive of the source>. Nothing is compiled: the same ways are built and run by test/consumer.
#
#   cmake -D SOURCE_DIR=<Reprise> -D PREFIX=<where it is installed> -D WORK_DIR=<scratch> -P test/packages/install_page.cmake

cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK_DIR}")
file(MAKE_DIRECTORY "${WORK_DIR}")
execute_process(COMMAND ${CMAKE_COMMAND} -E tar czf "${WORK_DIR}/reprise.tar.gz" CMakeLists.txt LICENSE cmake include
  WORKING_DIRECTORY "${SOURCE_DIR}" COMMAND_ERROR_IS_FATAL ANY)

file(READ "${SOURCE_DIR}/docs/install.md" rest)
set(shown 0)
while(rest MATCHES "```cmake\n(cmake_minimum_required[^`]*)```")
  set(project "${CMAKE_MATCH_1}")
  string(FIND "${rest}" "${project}" place)
  string(LENGTH "${project}" length)
  math(EXPR place "${place} + ${length}")
  string(SUBSTRING "${rest}" ${place} -1 rest)
  math(EXPR shown "${shown} + 1")

  set(folder "${WORK_DIR}/${shown}")
  string(REPLACE "<archive of the source>" "${WORK_DIR}/reprise.tar.gz" project "${project}")
  file(WRITE "${folder}/CMakeLists.txt" "${project}")
  file(COPY_FILE "${SOURCE_DIR}/test/consumer/core.cpp" "${folder}/main.cpp")
  file(CREATE_LINK "${SOURCE_DIR}" "${folder}/reprise" SYMBOLIC)
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${folder}" -B "${folder}/build" -G Ninja -Werror=dev "-DCMAKE_PREFIX_PATH=${PREFIX}"
    OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "what docs/install.md shows cannot be configured:\n${project}\n${said}")
  endif()
endwhile()
if(NOT shown EQUAL 3)  # add_subdirectory, FetchContent, find_package
  message(FATAL_ERROR "docs/install.md shows ${shown} projects that begin with cmake_minimum_required, not three")
endif()
