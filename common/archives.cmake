# Libraries as archives, so that `ferry` needs none of them on the node and not the C++ library either: to find, map and
# bind these five took a quarter of its start (docs/adr/0029).
function(ferry_archive name)
  find_library(FERRY_ARCHIVE_${name} lib${name}.a REQUIRED)
  add_library(archive::${name} STATIC IMPORTED GLOBAL)
  set_target_properties(archive::${name} PROPERTIES IMPORTED_LOCATION ${FERRY_ARCHIVE_${name}})
  target_link_libraries(archive::${name} INTERFACE ${ARGN})
endfunction()
ferry_archive(yaml-cpp)
ferry_archive(uuid)

# These two Debian has as shared libraries alone, and their headers hold all of their sources.
find_package(Threads REQUIRED)
add_library(ferry_fmt STATIC common/fmt_library.cpp)
target_link_libraries(ferry_fmt PRIVATE ferry_options)
add_library(archive::fmt ALIAS ferry_fmt)
add_library(ferry_spdlog STATIC common/spdlog_library.cpp)
target_compile_definitions(ferry_spdlog PUBLIC SPDLOG_COMPILED_LIB SPDLOG_FMT_EXTERNAL)
target_link_libraries(ferry_spdlog PUBLIC ferry_fmt Threads::Threads PRIVATE ferry_options)
add_library(archive::spdlog ALIAS ferry_spdlog)
foreach(library ferry_fmt ferry_spdlog)
  target_compile_options(${library} PRIVATE ${FERRY_FAST})
endforeach()
