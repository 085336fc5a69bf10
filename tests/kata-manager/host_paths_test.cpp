// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/host_paths.h"

#include <ostream>

#include <gmock/gmock.h>

#include "kata-manager/configuration/kata_configuration.h"
#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr const char* kVersion = "/opt/ferry/kata/.ferry/gpu/sha256-aa";

ArtifactBounds bounds_of(const char* shim = "/opt/kata/bin/containerd-shim-kata-v2",
                         const char* artifacts_dir = "/opt/ferry/kata") {
  const std::filesystem::path top = artifacts_dir;
  return {.version = top / ".ferry/gpu/sha256-aa", .artifacts_dir = top, .shim = shim};
}

KataClass gpu_class() {
  KataClass out;
  out.name = "gpu";
  out.artifacts.url = "registry.example/gpu:1";
  out.place = "k.yaml:3";
  return out;
}

std::vector<std::string> found_in(const std::string& configuration, const KataClass& kata = gpu_class(),
                                  const ArtifactBounds& bounds = bounds_of()) {
  std::vector<std::string> out;
  for (const Error& found :
       beyond_bounds(kata, test::must(parse_toml(configuration, "c.toml")), {}, bounds)) {
    EXPECT_NE(found.hint, "") << found.message;
    out.push_back(found.message);
  }
  return out;
}

/// The settings of Kata's own configurations and of NVIDIA's.
constexpr const char* kShipped =
    "[hypervisor.qemu]\n"
    "path = \"/opt/kata/bin/qemu-system-x86_64\"\n"
    "valid_hypervisor_paths = [\"/opt/kata/bin/qemu-system-x86_64\"]\n"
    "kernel = \"/opt/kata/share/kata-containers/vmlinuz-nvidia-gpu.container\"\n"
    "image = \"/opt/ferry/kata/.ferry/gpu/sha256-aa/kata.img\"\n"
    "initrd = \"\"\n"
    "firmware = \"/opt/ferry/kata/gpu/OVMF.fd\"\n"
    "firmware_volume = \"/usr/share/kata-containers/VARS.fd\"\n"
    "machine_accelerators = \"usb=off,gic-version=host\"\n"
    "seccompsandbox = \"on,obsolete=deny,spawn=deny\"\n"
    "cpu_features = \"pmu=off\"\n"
    "kernel_params = \"/x pci=realloc root=/dev/pmem0p1\"\n"
    "virtio_fs_daemon = \"/opt/kata/libexec/virtiofsd\"\n"
    "valid_virtio_fs_daemon_paths = [\"/opt/kata/libexec/virtiofsd\"]\n"
    "virtio_fs_extra_args = [\"--thread-pool-size=1\", \"-o\", \"announce_submounts\", \"--cache\", "
    "\"auto\"]\n"
    "entropy_source = \"/dev/urandom\"\n"
    "valid_entropy_sources = [\"/dev/urandom\", \"/dev/random\", \"\"]\n"
    "file_mem_backend = \"/dev/shm\"\n"
    "valid_file_mem_backends = [\"\"]\n"
    "vhost_user_store_path = \"/var/run/kata-containers/vhost-user\"\n"
    "valid_vhost_user_store_paths = [\"/var/run/kata-containers/vhost-user\"]\n"
    "guest_hook_path = \"/usr/share/oci/hooks\"\n"
    "jailer_path = \"\"\n"
    "enable_annotations = [\"enable_iommu\", \"kernel_params\", \"kernel_verity_params\", \"default_vcpus\", "
    "\"default_memory\", \"cc_init_data\"]\n"
    "[[hypervisor.qemu.guest_extension_images]]\n"
    "path = \"/opt/ferry/kata/.ferry/gpu/sha256-aa/extension.img\"\n"
    "[factory]\n"
    "template_path = \"/run/vc/vm/template\"\n"
    "vm_cache_endpoint = \"/var/run/kata-containers/cache.sock\"\n"
    "[agent.kata]\n"
    "kernel_modules = [\"/lib/x.ko\"]\n"
    "[runtime]\n"
    "dan_conf = \"/run/kata-containers/dans\"\n"
    "kubelet_root_dir = \"/var/lib/kubelet\"\n"
    "sandbox_bind_mounts = []\n"
    "jaeger_endpoint = \"http://localhost:14268/api/traces\"\n";

TEST(HostPaths, LetKatasOwnConfigurationsThrough) {
  EXPECT_THAT(found_in(kShipped), IsEmpty());
}

struct Beyond {
  const char* name;
  std::string line;  ///< of [hypervisor.qemu]
  std::string what;
};
void PrintTo(const Beyond& row, std::ostream* out) {
  *out << row.name;
}
class BeyondBoundsTable : public testing::TestWithParam<Beyond> {};

TEST_P(BeyondBoundsTable, IsSaidWithItsSetting) {
  EXPECT_THAT(found_in("[hypervisor.qemu]\n" + GetParam().line + "\n"), ElementsAre(GetParam().what));
}

constexpr const char* kNoProgram = "which is no program of Kata's installation (/opt/kata)";
constexpr const char* kNoFile = "which is neither of the artifact nor of Kata's installation (/opt/kata)";
constexpr const char* kPattern = "a pattern, by which a pod chooses";
std::string at(const std::string& key, const std::string& value, const std::string& why) {
  return "hypervisor.qemu." + key + " is '" + value + "', " + why;
}
Beyond program(const char* name, const std::string& key, const std::string& value) {
  return {name, key + " = \"" + value + "\"", at(key, value, kNoProgram)};
}
Beyond file(const char* name, const std::string& key, const std::string& value) {
  return {name, key + " = \"" + value + "\"", at(key, value, kNoFile)};
}
Beyond listed(const char* name, const std::string& key, const std::string& value, const char* why) {
  return {name, key + " = [\"" + value + "\"]", at(key, value, why)};
}
Beyond annotation(const char* name, const std::string& text, const std::string& why) {
  return {name, "enable_annotations = [\"" + text + "\"]",
          "hypervisor.qemu.enable_annotations has '" + text + "', " + why};
}

// An empty expression matches every annotation.
TEST(HostPaths, AreNotChosenByAnEmptyAnnotation) {
  EXPECT_EQ(found_in("[hypervisor.qemu]\nenable_annotations = [\"\"]\n").size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BeyondBoundsTable,
    testing::Values(
        program("ProgramOfTheHost", "path", "/bin/sh"),
        program("ProgramOfTheArtifact", "path", "/opt/ferry/kata/gpu/qemu"),
        program("ProgramOfTheVersion", "path", "/opt/ferry/kata/.ferry/gpu/sha256-aa/q"),
        program("ProgramOfThePodsFolder", "path", "rootfs/qemu"),
        program("WayOutOfKata", "path", "/opt/kata/../../bin/sh"), program("KataItself", "path", "/opt/kata"),
        program("SameBeginning", "path", "/opt/katana/bin/qemu"),
        program("Virtiofsd", "virtio_fs_daemon", "/tmp/virtiofsd"),
        program("Jailer", "jailer_path", "/bin/sh"), program("Ctl", "ctlpath", "/bin/sh"),
        listed("HypervisorOfTheHost", "valid_hypervisor_paths", "/bin/sh", kNoProgram),
        listed("AnyHypervisor", "valid_hypervisor_paths", "*", kPattern),
        listed("AnyHypervisorOfKata", "valid_hypervisor_paths", "/opt/kata/bin/*", kPattern),
        listed("AnyDaemon", "valid_virtio_fs_daemon_paths", "/usr/libexec/virtiofs?", kPattern),
        listed("AnyJailer", "valid_jailer_paths", "/[b]in/sh", kPattern),
        listed("AnyCtl", "valid_ctlpaths", "/{bin,sbin}/sh", kPattern),
        listed("AnyListThatMayCome", "valid_new_paths", "/*", kPattern),
        listed("AnyMemory", "valid_file_mem_backends", "/*", kPattern),
        file("DiskOfTheHost", "image", "/dev/sda"), file("FileOfThePodsFolder", "initrd", "rootfs/i"),
        file("FileOfAnotherClass", "kernel", "/opt/ferry/kata/other/vmlinuz"),
        file("Entropy", "entropy_source", "/etc/shadow"), file("Memory", "file_mem_backend", "/etc"),
        file("VhostUser", "vhost_user_store_path", "/dev"), file("Dump", "guest_memory_dump_path", "/etc"),
        file("SettingThatMayCome", "new_setting", "/etc/shadow"),
        listed("Flash", "pflashes", "/etc/shadow", kNoFile),
        Beyond{"Extension", "guest_extension_images = [{path = \"/dev/sda\"}]",
               at("guest_extension_images.path", "/dev/sda", kNoFile)},
        Beyond{"Accelerators", "machine_accelerators = \"kernel=/etc/shadow\"",
               at("machine_accelerators", "kernel=/etc/shadow", "which names a file of the host")},
        listed("SharedFolder", "virtio_fs_extra_args", "--shared-dir=/",
               "an option of virtiofsd that is not known to be harmless"),
        listed("SharedSource", "virtio_fs_extra_args", "source=/",
               "an option of virtiofsd that is not known to be harmless"),
        listed("NoSandbox", "virtio_fs_extra_args", "--sandbox=none",
               "an option of virtiofsd that is not known to be harmless"),
        annotation("AnyAnnotation", ".*", "a pattern"), annotation("Anchored", "^path$", "a pattern"),
        annotation("Path", "path", "by which a pod sets path"),
        annotation("PartOfAName", "mage", "by which a pod sets image"),
        annotation("Daemon", "virtio_fs_daemon", "by which a pod sets virtio_fs_daemon"),
        annotation("Arguments", "virtio_fs_extra_args", "by which a pod sets virtio_fs_extra_args"),
        annotation("Kernel", "kernel", "by which a pod sets kernel"),
        annotation("Firmware", "firmware", "by which a pod sets firmware"),
        Beyond{"TooLongAndHostile", "path = \"/\\u001b[2J0123456789012345678901234567890123456789\"",
               at("path", "/\\x1b[2J01234567890123456789012345678901234…", kNoProgram)}),
    [](const auto& row) { return row.param.name; });

TEST(HostPaths, ReachIntoEveryTable) {
  EXPECT_THAT(found_in("[factory]\nvm_cache_endpoint = \"/run/x.sock\"\ntemplate_path = \"/etc\"\n"
                       "[runtime]\nsandbox_bind_mounts = [\"/etc:rw\"]\n[netmon]\npath = \"/bin/sh\"\n"),
              ElementsAre(StartsWith("factory.template_path is '/etc'"),
                          StartsWith("factory.vm_cache_endpoint is '/run/x.sock'"),
                          StartsWith("netmon.path is '/bin/sh', which is no program"),
                          StartsWith("runtime.sandbox_bind_mounts is '/etc:rw'")));
}

// Kata's Go runtime takes a key whatever the case of its letters.
TEST(HostPaths, AreNotHiddenByCapitalLetters) {
  for (const char* configuration :
       {"[hypervisor.qemu]\nPath = \"/opt/kata/bin/qemu\"\n", "[Hypervisor.qemu]\n",
        "[hypervisor.qemu]\nEnable_Annotations = [\".*\"]\n"}) {
    const auto found = found_in(configuration);
    ASSERT_FALSE(found.empty()) << configuration;
    EXPECT_THAT(found[0], testing::HasSubstr("has capital letters")) << configuration;
  }
}

TEST(HostPaths, GiveTheGuestNoFolderOfTheHost) {
  for (const char* folder : {"/var/lib/kubelet", "/run/kata-containers", "/run/vc"})
    EXPECT_EQ(found_in(std::string("[runtime]\nsandbox_bind_mounts = [\"") + folder + "\"]\n").size(), 1U)
        << folder;
  EXPECT_EQ(found_in("[factory]\ntemplate_path = \"/var/lib/kubelet\"\n").size(), 1U);
}

TEST(HostPaths, AreAllowedByTheirNames) {
  KataClass kata = gpu_class();
  kata.artifacts.allow_host_paths = {"/usr/bin/qemu", "*", "/dev/sda"};
  kata.annotations = {"image"};
  const std::string named =
      "[hypervisor.qemu]\npath = \"/usr/bin/qemu\"\nvalid_hypervisor_paths = [\"*\"]\nimage = \"/dev/sda\"\n"
      "enable_annotations = [\"image\"]\n";
  EXPECT_THAT(found_in(named, kata), IsEmpty());
  EXPECT_THAT(found_in(named + "initrd = \"/dev/sda1\"\n", kata), ElementsAre(HasSubstr("/dev/sda1")))
      << "a folder or a part of a name allows nothing else";
  EXPECT_THAT(found_in(named).size(), 4U);
}

TEST(HostPaths, OfTheClassAndTheAdministratorAreTheirs) {
  const TomlTable said = test::must(parse_toml("[hypervisor.qemu]\npath = \"/usr/bin/qemu\"\n", "said"));
  EXPECT_THAT(beyond_bounds(gpu_class(), said, said, bounds_of()), IsEmpty());
  const TomlTable other = test::must(parse_toml("[hypervisor.qemu]\npath = \"/usr/bin/other\"\n", "other"));
  EXPECT_EQ(beyond_bounds(gpu_class(), other, said, bounds_of()).size(), 1U);
}

TEST(HostPaths, AreOfTheInstallationThatTheShimIsOf) {
  const auto path = [](const std::string& program) {
    return "[hypervisor.qemu]\npath = \"" + program + "\"\n";
  };
  const KataClass kata = gpu_class();
  const auto own = bounds_of("/srv/kata/runtime-rs/bin/containerd-shim-kata-v2");
  EXPECT_THAT(found_in(path("/srv/kata/bin/qemu"), kata, own), IsEmpty());
  EXPECT_THAT(found_in(path("/srv/other/bin/qemu"), kata, own), ElementsAre(HasSubstr("(/srv/kata)")));
  for (const char* prefix : {"", "/usr", "/usr/local"}) {
    const std::string shim = std::string(prefix) + "/bin/containerd-shim-kata-v2";
    EXPECT_THAT(found_in(path(std::string(prefix) + "/bin/env"), kata, bounds_of(shim.c_str())),
                ElementsAre(HasSubstr("(/opt/kata)")))
        << "the folder is not Kata's alone";
  }
}

TEST(HostPaths, OfArtifactsAreNotKatasWhereverTheyLie) {
  const KataClass kata = gpu_class();
  const auto inside = bounds_of("/opt/kata/bin/containerd-shim-kata-v2", "/opt/kata/artifacts");
  for (const char* program : {"/opt/kata/artifacts/gpu/qemu", "/opt/kata/artifacts/other/qemu",
                              "/opt/kata/artifacts/.ferry/other/sha256-bb/qemu"}) {
    EXPECT_EQ(found_in("[hypervisor.qemu]\npath = \"" + std::string(program) + "\"\n", kata, inside).size(),
              1U)
        << program;
  }
  EXPECT_THAT(found_in("[hypervisor.qemu]\npath = \"/opt/kata/bin/qemu\"\n", kata, inside), IsEmpty());
  const auto above = bounds_of("/opt/kata/bin/containerd-shim-kata-v2", "/opt");
  EXPECT_THAT(found_in("[hypervisor.qemu]\npath = \"/opt/kata/bin/qemu\"\n", kata, above), IsEmpty());
}

TEST(HostPaths, AreListedAsProgramsThatRun) {
  EXPECT_THAT(host_programs(test::must(parse_toml(kShipped, "c.toml"))),
              ElementsAre("/opt/kata/bin/qemu-system-x86_64", "/opt/kata/libexec/virtiofsd"));
  EXPECT_THAT(host_programs({}), IsEmpty());
}

KataBase base_of(const std::string& path) {
  return {.file = "/etc/ferry/kata/gpu/configuration.toml",
          .text = "[hypervisor.qemu]\npath = \"" + path +
                  "\"\nkernel = \"/x/vmlinuz\"\nimage = \"/x/i\"\nenable_annotations = [\".*\"]\n",
          .folder = kVersion,
          .files = {"vmlinuz", "i"},
          .artifacts_dir = bounds_of().artifacts_dir,
          .shim = {.path = bounds_of().shim}};
}

// An artifact's configuration may have a MiB of settings, and hostd has a limit of memory.
TEST(HostPaths, AreBoundedInNumberAndLength) {
  std::string configuration = "[hypervisor.qemu." + std::string(20'000, 'k') + "]\n";
  for (int i = 0; i < 2000; ++i) configuration += "A" + std::to_string(i) + " = 1\n";
  const auto found = found_in(configuration);
  EXPECT_EQ(found.size(), 1000U);
  for (const std::string& what : found) EXPECT_LT(what.size(), 300U);
}

TEST(HostPaths, BeyondBoundsRefuseAPulledConfigurationAndAreNotedOfAFolder) {
  const auto pulled = kata_drop_in(gpu_class(), base_of("/bin/sh"), {.gpus = 1}, "/k.sock");
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, Errc::refused);
  EXPECT_EQ(pulled.error().message,
            "k.yaml:3: class gpu: Kata's configuration of registry.example/gpu:1: "
            "hypervisor.qemu.enable_annotations has '.*', a pattern, and 1 other setting");
  EXPECT_EQ(pulled.error().hint,
            "name the settings that pods may change: set hypervisor.qemu.enable_annotations in the class's "
            "`configuration`");
  KataClass of_host = gpu_class();
  of_host.artifacts.url = "file:///srv/gpu";
  const KataDropIn folder = test::must(kata_drop_in(of_host, base_of("/bin/sh"), {.gpus = 1}, "/k.sock"));
  EXPECT_THAT(folder.notes, ElementsAre("hypervisor.qemu.enable_annotations has '.*', a pattern",
                                        at("path", "/bin/sh", kNoProgram)));
  EXPECT_THAT(folder.programs, ElementsAre("/bin/sh"));
}

TEST(HostPaths, AreSetByTheClassInsteadOfThePulledConfiguration) {
  KataClass kata = gpu_class();
  kata.configuration = test::must(parse_toml(
      "[hypervisor.qemu]\npath = \"/usr/bin/qemu\"\nenable_annotations = [\"default_memory\"]\n", "class"));
  const KataDropIn made = test::must(kata_drop_in(kata, base_of("/bin/sh"), {.gpus = 1}, "/k.sock"));
  EXPECT_THAT(made.programs, ElementsAre("/usr/bin/qemu"));
  KataBase site = base_of("/bin/sh");
  site.drop_ins = {
      {"70-site.toml", "[hypervisor.qemu]\npath = \"/usr/bin/own\"\nenable_annotations = [\".*\"]\n"}};
  EXPECT_THAT(test::must(kata_drop_in(gpu_class(), site, {.gpus = 1}, "/k.sock")).programs,
              ElementsAre("/usr/bin/own"));
}

}  // namespace
}  // namespace ferry::kata
