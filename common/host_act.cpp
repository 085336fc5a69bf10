// SPDX-License-Identifier: Apache-2.0
// The child's side of the host writer.
#include <array>
#include <cerrno>
#include <libkmod.h>
#include <memory>
#include <span>
#include <string>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/host_writer.h"

namespace ferry {
namespace {

int errno_of(const Result<>& result) {
  if (result) return 0;
  return result.error().code.category() == std::generic_category() ? result.error().code.value() : EIO;
}

int load_module(const std::string& root, const std::string& name) {
  utsname system{};
  if (::uname(&system) != 0) return errno;
  const std::string modules = (std::filesystem::path(root) / "lib/modules" / system.release).string();
  const std::string etc = (std::filesystem::path(root) / "etc/modprobe.d").string();
  const std::string lib = (std::filesystem::path(root) / "lib/modprobe.d").string();
  const std::array<const char*, 3> configs = {etc.c_str(), lib.c_str(), nullptr};
  const std::unique_ptr<kmod_ctx, kmod_ctx* (*)(kmod_ctx*)> context(
      ::kmod_new(modules.c_str(), configs.data()), ::kmod_unref);
  if (!context) return ENOMEM;
  ::kmod_load_resources(context.get());

  kmod_list* found = nullptr;
  if (const int failure = ::kmod_module_new_from_lookup(context.get(), name.c_str(), &found); failure < 0) {
    return -failure;
  }
  const std::unique_ptr<kmod_list, int (*)(kmod_list*)> modules_found(found, ::kmod_module_unref_list);
  if (!modules_found) return ENOENT;
  const std::unique_ptr<kmod_module, kmod_module* (*)(kmod_module*)> module(::kmod_module_get_module(found),
                                                                            ::kmod_module_unref);
  const int state = ::kmod_module_get_initstate(module.get());
  if (state == KMOD_MODULE_BUILTIN || state == KMOD_MODULE_LIVE) return 0;
  const int failure = ::kmod_module_probe_insert_module(module.get(), KMOD_PROBE_APPLY_BLACKLIST_ALIAS_ONLY,
                                                        nullptr, nullptr, nullptr, nullptr);
  return failure < 0 ? -failure : failure;
}

}  // namespace

int host_act_main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  int outcome = 0;
  if (argc == 6 && std::string_view(arguments[2]) == "write") {
    HostFs host(arguments[3]);
    outcome = errno_of(host.write_attribute(arguments[4], arguments[5]));
  } else if (argc == 5 && std::string_view(arguments[2]) == "load-module") {
    outcome = load_module(arguments[3], arguments[4]);
  } else {
    return 2;
  }
  const std::string text = std::to_string(outcome) + "\n";
  return ::write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
}

}  // namespace ferry
