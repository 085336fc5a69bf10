# SPDX-License-Identifier: Apache-2.0
# The toolchain of the preset arm64: Debian's cross compiler, with the libraries that scripts/lib/arm64 has unpacked.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

if(DEFINED ENV{XDG_CACHE_HOME})
  set(CMAKE_SYSROOT $ENV{XDG_CACHE_HOME}/ferry/arm64/root)
else()
  set(CMAKE_SYSROOT $ENV{HOME}/.cache/ferry/arm64/root)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

# Runs what the build has to run: kubectl-ferry prints its completion.
set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_SYSROOT}/qemu-aarch64-static -L ${CMAKE_SYSROOT})
