# Asks a Catch2 executable for its tests and writes one ctest entry each: EXECUTABLE, LIST_OPTIONS (separated by |), RUN_OPTIONS
# (likewise), LABEL, TIMEOUT, OUTPUT. Catch2's own module splits names at semicolons; a test's name is a sentence and may have one.
# A test that says "no Chromium here" counts as skipped, and ctest lists it as such.

string(REPLACE "|" ";" LIST_OPTIONS "${LIST_OPTIONS}")
string(REPLACE "|" " " RUN_OPTIONS "${RUN_OPTIONS}")

# Catch2 2 returns the number of tests, so only signals and missing libraries are told from success by the result.
execute_process(COMMAND "${EXECUTABLE}" ${LIST_OPTIONS} OUTPUT_VARIABLE names RESULT_VARIABLE result)
if(NOT result MATCHES "^[0-9]+$" OR names STREQUAL "")
  message(FATAL_ERROR "${EXECUTABLE} does not say which tests it has (${result})")
endif()

set(script "")
while(names MATCHES "^([^\n]+)\n(.*)$")
  set(name "${CMAKE_MATCH_1}")
  set(names "${CMAKE_MATCH_2}")
  string(REGEX REPLACE "([][,\\\\])" "\\\\\\1" pattern "${name}")
  string(APPEND script
    "add_test([==[${name}]==] [==[${EXECUTABLE}]==] [==[${pattern}]==] ${RUN_OPTIONS})\n"
    "set_tests_properties([==[${name}]==] PROPERTIES LABELS ${LABEL} TIMEOUT ${TIMEOUT} SKIP_REGULAR_EXPRESSION [==[no Chromium here]==])\n")
endwhile()
file(WRITE "${OUTPUT}" "${script}")
