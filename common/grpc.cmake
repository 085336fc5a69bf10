# Protobuf first: Debian ships no config file for it, and gRPC's would look for one.
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)

# One library an API. NAME_api: the messages alone, all that Ferry needs, since its transport speaks to gRPC's core
# directly. NAME_stubs: with gRPC's C++ stubs, for stand-ins.
function(ferry_proto name file)
  set(generated ${CMAKE_BINARY_DIR}/generated/proto)
  add_library(${name}_api STATIC ${file})
  protobuf_generate(TARGET ${name}_api PROTOC_OUT_DIR ${generated} IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR})
  target_include_directories(${name}_api SYSTEM PUBLIC ${generated})
  target_compile_features(${name}_api PUBLIC cxx_std_20)
  target_compile_options(${name}_api PRIVATE ${FERRY_FAST})
  target_link_libraries(${name}_api PUBLIC archive::protobuf-lite)
  add_library(${name}_stubs STATIC EXCLUDE_FROM_ALL ${file})
  protobuf_generate(TARGET ${name}_stubs LANGUAGE grpc PROTOC_OUT_DIR ${generated}
                    IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR} GENERATE_EXTENSIONS .grpc.pb.h .grpc.pb.cc
                    PLUGIN protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>)
  target_compile_options(${name}_stubs PRIVATE ${FERRY_FAST})
  target_link_libraries(${name}_stubs PUBLIC ${name}_api ferry_grpcpp)
endfunction()
# gRPC and what it needs as Debian's archives: the sockets we speak through are local, so the variant without TLS will do,
# and nothing of it is looked for on the node. Debian's CMake package knows the shared libraries only, and these
# targets the order in which a linker wants the archives.
find_library(FERRY_ARCHIVE_absl libabsl_base.a REQUIRED)
get_filename_component(archives ${FERRY_ARCHIVE_absl} DIRECTORY)
file(GLOB absl ${archives}/libabsl_*.a)
add_library(ferry_absl INTERFACE)
target_link_libraries(ferry_absl INTERFACE -Wl,--start-group ${absl} -Wl,--end-group Threads::Threads)
ferry_archive(protobuf-lite Threads::Threads)
ferry_archive(upb)
ferry_archive(address_sorting)
ferry_archive(re2 Threads::Threads)
ferry_archive(cares)
ferry_archive(z)
ferry_archive(gpr ferry_absl)
ferry_archive(grpc_unsecure archive::gpr archive::upb archive::address_sorting archive::re2 archive::cares archive::z)
ferry_archive(grpc++_unsecure archive::grpc_unsecure archive::protobuf-lite)

add_library(ferry_grpc INTERFACE)
target_link_libraries(ferry_grpc INTERFACE archive::grpc_unsecure)
target_link_options(ferry_grpc INTERFACE -Wl,--gc-sections)
add_library(ferry_grpcpp INTERFACE)
target_link_libraries(ferry_grpcpp INTERFACE archive::grpc++_unsecure)
target_link_options(ferry_grpcpp INTERFACE -Wl,--gc-sections)
