// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/host_paths.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "common/config/config_tree.h"
#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "kata-manager/configuration/kata_parts.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {
namespace {

namespace fs = std::filesystem;

bool is_among(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

// Settings in both runtimes of Kata 4.1.0 (src/runtime/pkg/katautils/config.go,
// src/libs/kata-types/src/config). The shim starts these programs; pods may choose from the lists.
constexpr auto kPrograms =
    std::to_array<std::string_view>({"path", "virtio_fs_daemon", "jailer_path", "ctlpath"});
constexpr auto kProgramLists = std::to_array<std::string_view>(
    {"valid_hypervisor_paths", "valid_virtio_fs_daemon_paths", "valid_jailer_paths", "valid_ctlpaths"});
// Kata resolves a relative path in the pod's folder, which has files of the pod's image.
constexpr auto kFiles = std::to_array<std::string_view>(
    {"kernel", "image", "initrd", "firmware", "firmware_volume", "pflashes", "entropy_source",
     "valid_entropy_sources", "file_mem_backend", "valid_file_mem_backends", "vhost_user_store_path",
     "valid_vhost_user_store_paths", "guest_memory_dump_path", "remote_hypervisor_socket",
     "sandbox_bind_mounts", "dan_conf", "template_path", "vm_cache_endpoint"});
// Settings with paths in the guest.
constexpr auto kOfGuest = std::to_array<std::string_view>(
    {"guest_hook_path", "kernel_params", "kernel_verity_params", "kernel_modules"});

// Settings with which a pod chooses a program, a file of the host, or a program's argument.
constexpr auto kChoosing = std::to_array<std::string_view>(
    {"path", "virtio_fs_daemon", "virtio_fs_extra_args", "jailer_path", "ctlpath", "kernel", "image",
     "initrd", "firmware", "firmware_volume", "entropy_source", "file_mem_backend", "vhost_user_store_path",
     "guest_memory_dump_path", "remote_hypervisor_socket", "machine_accelerators"});

// virtiofsd's options that open no other folder and weaken none of its limits.
constexpr auto kDaemonOptions = std::to_array<std::string_view>(
    {"-o", "announce_submounts", "no_announce_submounts", "--announce-submounts", "--no-announce-submounts",
     "--allow-direct-io", "--cache", "--inode-file-handles", "--log-level", "--posix-acl",
     "--thread-pool-size", "--writeback", "--xattr"});

// Folders and devices in Kata's own configurations.
constexpr auto kFoldersOfKata =
    std::to_array<std::string_view>({"/usr/share/kata-containers", "/run/kata-containers",
                                     "/var/run/kata-containers", "/run/vc", "/var/run/vc"});
constexpr auto kHarmless = std::to_array<std::string_view>(
    {"/dev/random", "/dev/urandom", "/dev/hwrng", "/dev/shm", "/dev/hugepages"});
constexpr auto kFoldersOfKubelet =
    std::to_array<std::string_view>({"/var/lib/kubelet", "/var/lib/k0s/kubelet"});

// If the shim is in one of these folders' bin, programs of other packages lie beside it.
constexpr auto kFoldersOfOthers = std::to_array<std::string_view>({"/", "/usr", "/usr/local"});

/// The folder of Kata's installation. Empty: the shim lies among other packages' programs.
fs::path installation_of(const fs::path& shim) {
  if (shim.parent_path().filename() != "bin") return {};
  fs::path out = shim.parent_path().parent_path();
  if (out.filename() == "runtime-rs") out = out.parent_path();
  return is_among(out.native(), kFoldersOfOthers) ? fs::path() : out;
}

std::string in_quotes(std::string_view text) {
  return "'" + visible_line(shortened(text)) + "'";
}

class Judge {
 public:
  Judge(const KataClass& kata, const ArtifactBounds& bounds)
      : kata_(kata),
        bounds_(bounds),
        link_(bounds.artifacts_dir / kata.name),
        installation_(installation_of(bounds.shim)) {}

  /// `trusted` is nullptr if it lacks this table.
  void look_at(const TomlTable& table, const TomlTable* trusted, const std::string& where) {
    for (const auto& [key, value] : table) {
      const TomlValue* said = nullptr;
      if (trusted != nullptr) {
        const auto found = trusted->find(key);
        said = found == trusted->end() ? nullptr : &found->second;
      }
      const std::string here = where.empty() ? shortened(key) : fmt::format("{}.{}", where, shortened(key));
      if (said == nullptr) look_at_letters(key, here);
      if (value.table() != nullptr) {
        look_at(*value.table(), said == nullptr ? nullptr : said->table(), here);
      } else if (said == nullptr || *said != value) {
        look_at(value, key, here);
      }
    }
  }

  std::vector<Error> found() && { return std::move(found_); }

 private:
  void look_at(const TomlValue& value, const std::string& key, const std::string& where) {
    if (const TomlArray* const list = value.array()) {
      for (const TomlValue& element : *list) look_at(element, key, where);
    } else if (const TomlTable* const table = value.table()) {
      // A table in a list is no hypervisor's: its `path` is a file.
      for (const auto& [inner, setting] : *table) {
        const std::string here = fmt::format("{}.{}", where, shortened(inner));
        look_at_letters(inner, here);
        look_at(setting, inner == "path" ? "image" : inner, here);
      }
    } else if (const std::string* const text = value.string();
               text != nullptr && (!text->empty() || key == "enable_annotations")) {
      look_at(*text, key, where);
    }
  }

  // Kata's Go runtime ignores the case of keys.
  void look_at_letters(const std::string& key, const std::string& where) {
    if (std::ranges::none_of(key, [](char c) { return c >= 'A' && c <= 'Z'; })) return;
    add(fmt::format("{} has capital letters, and Kata reads it like the setting in small letters", where),
        "write the setting in small letters in the artifact's configuration");
  }

  void look_at(const std::string& text, const std::string& key, const std::string& where) {
    if (key == "enable_annotations") return look_at_annotation(text, where);
    if (is_among(key, kOfGuest)) return;
    const bool allowed =
        std::ranges::find(kata_.artifacts.allow_host_paths, text) != kata_.artifacts.allow_host_paths.end();
    if (allowed) return;
    if (key == "virtio_fs_extra_args") return look_at_argument(text, where);
    if (key == "machine_accelerators" && text.find('/') != std::string::npos)
      return refuse_setting(where, text, "which names a file of the host");
    if (key.starts_with("valid_") && text.find_first_of("*?[]{}\\") != std::string::npos)
      return refuse_path(where, text, "a pattern, by which a pod chooses");
    if (key == "sandbox_bind_mounts")
      return refuse_path(where, text, "which the guest would get of the host");
    if (is_among(key, kPrograms) || is_among(key, kProgramLists)) {
      if (!is_of_kata(text)) refuse_path(where, text, "which is no program of Kata's installation" + named());
    } else if (is_among(key, kFiles) || text.starts_with('/')) {
      const bool of_kubelet = key == "kubelet_root_dir" && is_among(text, kFoldersOfKubelet);
      if (!of_kubelet && !is_file_within(text))
        refuse_path(where, text, "which is neither of the artifact nor of Kata's installation" + named());
    }
  }

  // Kata treats each entry as a regular expression that may match a part of a name. Only plain names are
  // accepted, since they match just themselves.
  void look_at_annotation(const std::string& text, const std::string& where) {
    if (std::ranges::find(kata_.annotations, text) != kata_.annotations.end()) return;
    const bool plain = std::ranges::all_of(
        text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
    const std::string hint = fmt::format(
        "name the settings that pods may change: set {} in the class's `configuration`{}", where,
        plain ? fmt::format(", or allow this one: annotations: [{}]", visible_line(shortened(text))) : "");
    if (!plain) return add(fmt::format("{} has {}, a pattern", where, in_quotes(text)), hint);
    const auto* const chosen = std::ranges::find_if(
        kChoosing, [&](std::string_view name) { return name.find(text) != std::string_view::npos; });
    if (chosen != kChoosing.end())
      add(fmt::format("{} has {}, by which a pod sets {}", where, in_quotes(text), *chosen), hint);
  }

  void look_at_argument(const std::string& text, const std::string& where) {
    const auto equals = text.find('=');
    const std::string_view option = std::string_view(text).substr(0, equals);
    const std::string_view value =
        equals == std::string::npos ? std::string_view() : std::string_view(text).substr(equals + 1);
    const auto is_plain = [](std::string_view word) {
      return std::ranges::all_of(word, [](char c) { return is_alphanumeric(c) || c == '_'; });
    };
    // The text may be the value of the option before it.
    const bool is_value = equals == std::string::npos && is_plain(text);
    if (is_value || (is_among(option, kDaemonOptions) && is_plain(value))) return;
    refuse_setting(where, text, "an option of virtiofsd that is not known to be harmless");
  }

  static bool is_plain_path(const fs::path& path) {
    return path.is_absolute() && std::ranges::none_of(path, [](const auto& part) { return part == ".."; });
  }
  bool is_of_kata(const std::string& text) const {
    const fs::path path = fs::path(text).lexically_normal();
    // A registry's file is not Kata's, even if the artifacts' folder lies in Kata's installation.
    if (is_below(path, bounds_.version) || is_below(path, link_)) return false;
    if (is_below(path, bounds_.artifacts_dir) && !is_below(installation_, bounds_.artifacts_dir) &&
        !is_below("/opt/kata", bounds_.artifacts_dir))
      return false;
    return is_plain_path(text) && (is_below(path, installation_) || is_below(path, "/opt/kata"));
  }
  bool is_file_within(const std::string& text) const {
    const fs::path path = fs::path(text).lexically_normal();
    if (!is_plain_path(text)) return false;
    if (is_below(path, bounds_.version) || is_below(path, link_) || is_of_kata(text)) return true;
    return is_among(path.native(), kHarmless) ||
           std::ranges::any_of(kFoldersOfKata, [&](std::string_view folder) {
             return path == folder || is_below(path, folder);
           });
  }

  std::string named() const {
    return fmt::format(" ({})", installation_.empty() ? "/opt/kata" : installation_.string());
  }

  void refuse_path(const std::string& where, const std::string& text, const std::string& why) {
    const std::string path = shortened(text) == text ? "\"" + text + "\"" : "PATH";
    add(fmt::format("{} is {}, {}", where, in_quotes(text), why),
        fmt::format("if it is meant, allow it by name in the class file: artifacts: {{allowHostPaths: "
                    "[{}]}}; or set {} in the class's `configuration`",
                    path, where));
  }
  void refuse_setting(const std::string& where, const std::string& text, const std::string& why) {
    add(fmt::format("{} is {}, {}", where, in_quotes(text), why),
        fmt::format("if it is meant, set {} in the class's `configuration`", where));
  }
  // A text of a MiB may have a hundred thousand settings.
  void add(const std::string& what, const std::string& hint) {
    constexpr std::size_t kMost = 1000;
    if (found_.size() >= kMost) return;
    found_.push_back({.code = Errc::refused, .message = visible_line(what), .hint = visible_line(hint)});
  }

  const KataClass& kata_;
  const ArtifactBounds& bounds_;
  fs::path link_;
  fs::path installation_;
  std::vector<Error> found_;
};

}  // namespace

std::vector<Error> beyond_bounds(const KataClass& kata, const TomlTable& effective, const TomlTable& trusted,
                                 const ArtifactBounds& bounds) {
  Judge judge(kata, bounds);
  judge.look_at(effective, &trusted, "");
  return std::move(judge).found();
}

Result<> refuse_beyond(const KataClass& kata, const std::vector<Error>& beyond) {
  if (beyond.empty()) return {};
  const std::size_t others = beyond.size() - 1;
  return fail(
      Errc::refused,
      fmt::format("{}: class {}: Kata's configuration of {}: {}{}", kata.place, kata.name, kata.artifacts.url,
                  beyond.front().message, others == 0 ? "" : ", and " + counted(others, "other setting")),
      beyond.front().hint);
}

std::vector<std::filesystem::path> host_programs(const TomlTable& effective) {
  std::vector<fs::path> out;
  const auto hypervisor = hypervisor_of(effective);
  if (!hypervisor) return out;
  const TomlTable& settings = settings_of(effective, *hypervisor);
  for (const std::string_view key : kPrograms) {
    const std::string text = text_at(settings, {key});
    if (!text.empty()) out.emplace_back(text);
  }
  return out;
}

}  // namespace ferry::kata
