# Who may include whom: SOURCE_DIR.
#
# A room is a folder of include/reprise. Each line names a room and the rooms whose headers it may
# include; a room stands below all that may include it. An include that goes up, or to a neighbour
# that the line does not name, fails, and so does a name here that no include needs.

cmake_policy(VERSION 3.25)

set(layers
  "base:"
  "pack: base"
  "graph: base"
  "profile: base graph"
  "plan/search: base graph"
  "plan: base pack graph plan/search"
  "rewrite: base graph"
  "pipeline: base graph profile plan rewrite"
  "report: base graph profile rewrite"
  "cuda: base profile"
  "libtorch/device/interface: base"
  "libtorch/device/cpu: base pack libtorch/device/interface"
  "libtorch/device: base libtorch/device/interface libtorch/device/cpu"
  "libtorch/torch: base profile libtorch/device"
  "libtorch/residency: base libtorch/device libtorch/torch"
  "libtorch/record: base graph libtorch/device libtorch/torch libtorch/residency"
  "libtorch/replay: base pack graph profile rewrite libtorch/device libtorch/torch libtorch/residency libtorch/record"
  "libtorch/options: base profile plan report"
  "libtorch/pipeline: profile pipeline plan rewrite libtorch/torch libtorch/record libtorch/replay libtorch/options"
  "libtorch/checkpoint: base libtorch/torch"
  "libtorch/guided: base plan pipeline libtorch/device libtorch/torch libtorch/residency libtorch/record libtorch/options"
  "libtorch/train_step: base graph profile plan rewrite pipeline libtorch/device libtorch/torch libtorch/record libtorch/replay libtorch/options libtorch/pipeline"
  "libtorch: plan libtorch/torch libtorch/record libtorch/options libtorch/pipeline libtorch/checkpoint libtorch/guided libtorch/train_step"
)

set(rooms "")
foreach(line IN LISTS layers)
  string(REGEX MATCH "^([^:]+):(.*)$" line "${line}")
  set(room "${CMAKE_MATCH_1}")
  string(STRIP "${CMAKE_MATCH_2}" allowed)
  string(REPLACE " " ";" allowed "${allowed}")
  foreach(lower IN LISTS allowed)
    if(NOT lower IN_LIST rooms)
      message(SEND_ERROR "test/layers.cmake: ${room} may include ${lower}, which does not stand below it")
    endif()
  endforeach()
  list(APPEND rooms "${room}")
  set("may_${room}" "${allowed}")
  set("does_${room}" "")
endforeach()

# room_of(<variable> <path below include/reprise>): the umbrella headers at the top are in no room.
function(room_of variable path)
  cmake_path(GET path PARENT_PATH room)
  while(NOT room IN_LIST rooms AND NOT room STREQUAL "")
    cmake_path(GET room PARENT_PATH room)
  endwhile()
  set(${variable} "${room}" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE headers RELATIVE "${SOURCE_DIR}/include/reprise" "${SOURCE_DIR}/include/reprise/*.hpp")
set(edges 0)
foreach(header IN LISTS headers)
  room_of(room "${header}")
  if(room STREQUAL "")
    if(header MATCHES "/")
      message(SEND_ERROR "include/reprise/${header} lies in no room of test/layers.cmake")
    endif()
    continue()
  endif()
  file(STRINGS "${SOURCE_DIR}/include/reprise/${header}" includes REGEX "^#include <reprise/")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include <reprise/([^>]+)>.*" "\\1" included "${include}")
    room_of(to "${included}")
    if(to STREQUAL room)
      continue()
    endif()
    math(EXPR edges "${edges} + 1")
    if(NOT to IN_LIST "may_${room}")
      message(SEND_ERROR "include/reprise/${header} includes ${included}: ${room} may not include '${to}' (test/layers.cmake)")
    endif()
    list(APPEND "does_${room}" "${to}")
  endforeach()
endforeach()
if(edges LESS 100)
  message(SEND_ERROR "test/layers.cmake has seen only ${edges} includes from one room to another")
endif()

# base/rooms.hpp has the same rooms, as namespaces: each room's headers are in one, and it sees those
# of the rooms that the room may include, and no others. The fronts see all of them.
file(STRINGS "${SOURCE_DIR}/include/reprise/base/rooms.hpp" lines REGEX "^(namespace|using namespace) ")
set(declared "")
set(open "")
foreach(line IN LISTS lines)
  if(line MATCHES "^namespace ([a-z]+) {}")
    list(APPEND declared "${CMAKE_MATCH_1}")
  elseif(line MATCHES "^namespace ([a-z]+) {")
    set(open "${CMAKE_MATCH_1}")
  elseif(line MATCHES "^using namespace ([a-z]+)")
    list(APPEND "sees_${open}" "${CMAKE_MATCH_1}")
  endif()
endforeach()
set(named "")
foreach(header IN LISTS headers)
  room_of(room "${header}")
  file(STRINGS "${SOURCE_DIR}/include/reprise/${header}" opened REGEX "^namespace reprise::[a-z]+ {")
  list(TRANSFORM opened REPLACE "^namespace reprise::([a-z]+) {.*" "\\1")
  list(REMOVE_DUPLICATES opened)
  list(LENGTH opened count)
  if(count GREATER 1)
    continue()  # a function that is to be found beside another room's type
  endif()
  foreach(name IN LISTS opened)
    if(NOT name IN_LIST declared)
      message(SEND_ERROR "include/reprise/${header} is in reprise::${name}, which base/rooms.hpp does not have")
    elseif(NOT "${name_of_${room}}" MATCHES "^(${name})?$")
      message(SEND_ERROR "include/reprise/${header} is in reprise::${name}; its room, ${room}, in reprise::${name_of_${room}}")
    endif()
    set("name_of_${room}" "${name}")
    list(APPEND named "${name}")
  endforeach()
endforeach()
foreach(name IN LISTS declared)
  if(NOT name IN_LIST named)
    message(SEND_ERROR "base/rooms.hpp has reprise::${name}, in which no header is")
  endif()
  set("may_see_${name}" "")
endforeach()
foreach(room IN LISTS rooms)
  set(name "${name_of_${room}}")
  foreach(lower IN LISTS "may_${room}")
    if(NOT "${name_of_${lower}}" STREQUAL "${name}")
      list(APPEND "may_see_${name}" "${name_of_${lower}}")
    endif()
  endforeach()
endforeach()
set(may_see_fronts ${declared})
list(REMOVE_ITEM may_see_fronts fronts cpu)
list(REMOVE_ITEM may_see_devices cpu)  # device.hpp names cpu::CpuMemory once, in full
foreach(name IN LISTS declared)
  set(may ${may_see_${name}})
  set(does ${sees_${name}})
  list(REMOVE_DUPLICATES may)
  list(SORT may)
  list(SORT does)
  if(NOT "${may}" STREQUAL "${does}")
    message(SEND_ERROR "base/rooms.hpp: reprise::${name} sees '${does}', but by test/layers.cmake it is to see '${may}'")
  endif()
endforeach()

# docs/design.md shows the same table.
file(READ "${SOURCE_DIR}/docs/design.md" page)
foreach(room IN LISTS rooms)
  foreach(lower IN LISTS "may_${room}")
    if(NOT lower IN_LIST "does_${room}")
      message(SEND_ERROR "test/layers.cmake: ${room} may include ${lower}, and no header of it does")
    endif()
  endforeach()
  list(JOIN "may_${room}" "`, `" row)
  if(row)
    set(row "`${row}`")
  endif()
  string(FIND "${page}" "\n| `${room}` | ${row} |" place)
  if(place EQUAL -1)
    message(SEND_ERROR "docs/design.md's table of rooms has no row '| `${room}` | ${row} |'")
  endif()
endforeach()

# What knows of the CPU's memory is behind libtorch/device/device.hpp: no other room includes a
# device's own headers (above), nor names anything in them.
set(cpu_names
  "cpu_memory|CpuMemory|counting_allocator|CountingAllocator|counted_blocks|CountedBlocks|block_header|BlockHeader"
  "|block_keepers|BlockKeepers|heap_blocks|HeapBlocks|in_place_blocks|InPlaceBlocks|thread_hooks|page_[a-z]+[.]hpp|page_blocks|PageBlocks"
  "|PageRegion|PageRuns|PageMappings|PageProtection|protected_blocks|ProtectedBlocks|fault_handler|FaultHandler"
  "|spill_file|SpillFile|DeviceType::CPU|device/cpu|cpu::")
string(JOIN "" cpu_names ${cpu_names})
foreach(header IN LISTS headers)
  if(NOT header MATCHES "^libtorch/device/")
    file(STRINGS "${SOURCE_DIR}/include/reprise/${header}" named REGEX "${cpu_names}")
    foreach(line IN LISTS named)
      message(SEND_ERROR "include/reprise/${header} names the CPU's memory: '${line}'. Ask libtorch/device/device.hpp")
    endforeach()
  endif()
endforeach()
