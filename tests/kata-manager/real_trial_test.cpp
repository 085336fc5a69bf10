// SPDX-License-Identifier: Apache-2.0
// Real releases of containerd, started apart on files with which they would serve no CRI.
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hostfs/host_writer.h"
#include "kata-manager/controller/restart_check.h"
#include "kata-manager/toml/toml.h"
#include "tests/kata-manager/containerd_daemon.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::HasSubstr;

class RealTrial : public testing::Test {
 protected:
  void SetUp() override {
    if (test::containerd_binaries().empty()) GTEST_SKIP() << "no containerd is named by FERRY_CONTAINERDS";
  }

  /// The first of the files is the main file. An empty reason: CRI would be served.
  TrialFault why(const test::ContainerdBinary& binary,
                 const std::vector<std::pair<std::string, std::string>>& files) {
    std::vector<ContainerdFile> all;
    for (const auto& [name, text] : files) {
      scratch.file(name, text);
      all.push_back({.path = scratch.path() / name, .root = test::must(parse_toml(text, name))});
    }
    auto fault = test::must(why_no_cri(machine, writer, binary.path, all,
                                       (scratch.path() / "trial").relative_path(), std::chrono::seconds(1)));
    EXPECT_FALSE(std::filesystem::exists(scratch.path() / "trial"));
    return fault.value_or(TrialFault{.reason = {}, .place = {}});
  }
  TrialFault why(const test::ContainerdBinary& binary, const std::string& main) {
    return why(binary, {{"config.toml", main}});
  }
  std::string place(const char* name, int line) const {
    return (scratch.path() / name).string() + ":" + std::to_string(line);
  }

  test::ScratchDirectory scratch;
  HostFs machine{"/"};
  SpawningWriter writer{machine};
};

constexpr const char* kCri = "[plugins.\"io.containerd.grpc.v1.cri\"";
constexpr const char* kRunc = "runtime_type = \"io.containerd.runc.v2\"\n";

enum class By { all, containerd_1, since_1_7, containerd_2, none };

bool refuses(const ContainerdRelease& release, By by) {
  const bool is_2 = release.merges_sections();
  return by == By::all || (by == By::since_1_7 && release >= ContainerdRelease{1, 7, 0}) ||
         by == (is_2 ? By::containerd_2 : By::containerd_1);
}

/// A configuration of version 2 whose last line has the fault.
struct Row {
  const char* what;
  std::string lines;
  By refused;
  std::string words;
  bool has_line = true;  ///< the fault's line is known
  /// Some releases do two things at once, or in the order of a Go map: the other one may fail first.
  std::string or_words = {};
};

std::vector<Row> rows() {
  const std::string cri = kCri;
  const std::string nri = "[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = false\n";
  const std::string opt =
      "required_plugins = [\"io.containerd.internal.v1.opt\"]\n[plugins.\"io.containerd.internal.v1.opt\"]\n";
  const bool has_cgroup_2 = std::filesystem::exists("/sys/fs/cgroup/cgroup.controllers");
  const std::string runc = cri + ".containerd.runtimes.runc]\n" + kRunc;
  return {
      {"nothing", "", By::none, ""},
      // Refused when CRI's service is created.
      {"an unknown snapshotter", cri + ".containerd]\nsnapshotter = \"nydus\"\n", By::containerd_1,
       "failed to create CRI service: failed to find snapshotter \"nydus\""},
      {"a snapshotter that is not set up", cri + ".containerd]\nsnapshotter = \"devmapper\"\n",
       By::containerd_1, "failed to find snapshotter \"devmapper\""},
      {"a snapshotter for another filesystem",
       "root = \"SCRATCH/root\"\n" + cri + ".containerd]\nsnapshotter = \"zfs\"\n", By::containerd_1,
       "failed to find snapshotter \"zfs\""},
      {"a snapshotter that is off", "disabled_plugins = [\"io.containerd.snapshotter.v1.overlayfs\"]\n",
       By::all, "overlayfs", false},
      {"a content store by the snapshotter's name",
       "[proxy_plugins.far]\ntype = \"content\"\naddress = \"/run/far.sock\"\n" + cri +
           ".containerd]\nsnapshotter = \"far\"\n",
       By::containerd_1, "failed to find snapshotter \"far\""},
      {"a snapshotter behind a socket that the copy lacks",
       "[proxy_plugins.far]\ntype = \"snapshot\"\naddress = \"/run/far.sock\"\n" + cri +
           ".containerd]\nsnapshotter = \"far\"\n",
       By::none, ""},
      {"a required snapshotter behind such a socket",
       "required_plugins = [\"io.containerd.snapshotter.v1.far\"]\n"
       "[proxy_plugins.far]\ntype = \"snapshot\"\naddress = \"/run/far.sock\"\n",
       By::none, ""},
      {"a required content store behind such a socket",
       "required_plugins = [\"io.containerd.content.v1.far\"]\n"
       "[proxy_plugins.far]\ntype = \"content\"\naddress = \"/run/far.sock\"\n",
       By::none, ""},
      {"a differ that there is not",
       "[plugins.\"io.containerd.service.v1.diff-service\"]\ndefault = [\"far\"]\n", By::all, "far", false},
      {"an address that is a path to containerd", "[grpc]\naddress = \"unix:///run/containerd/c.sock\"\n",
       By::none, ""},
      {"a network folder below a file", cri + ".cni]\nconf_dir = \"/etc/hostname/net.d\"\n", By::all,
       "failed to create cni conf monitor for default", false},
      {"a network folder of one runtime below a file", runc + "cni_conf_dir = \"/etc/hostname/net.d\"\n",
       By::all, "failed to create cni conf monitor for runc", false},
      {"no key for the stream server",
       cri + ".x509_key_pair_streaming]\ntls_key_file = \"/no/key\"\ntls_cert_file = \"/no/cert\"\n" + cri +
           "]\nenable_tls_streaming = true\n",
       By::all, "failed to load x509 key pair for stream server: open /no/cert", false},
      {"no base of a runtime's specification", runc + "base_runtime_spec = \"/no/such/spec.json\"\n", By::all,
       "/no/such/spec.json"},
      {"an unknown snapshotter for unpacking",
       "[[plugins.\"io.containerd.transfer.v1.local\".unpack_config]]\nplatform = \"linux/amd64\"\n"
       "snapshotter = \"nydus\"\n",
       By::containerd_2, "snapshotter \"nydus\" not found", false},
      {"a plugin that CRI needs is off", "disabled_plugins = [\"io.containerd.metadata.v1.bolt\"]\n", By::all,
       "io.containerd.metadata.v1", false, "no runtimes available to create task service"},
      // Refused when it begins to listen.
      {"an address that the host lacks", cri + "]\nstream_server_address = \"192.0.2.9\"\n", By::all,
       "listen tcp 192.0.2.9:0: bind: cannot assign requested address", false},
      {"a port that is none", cri + "]\nstream_server_port = \"99999\"\n", By::all,
       "address 99999: invalid port", false},
      {"another address, for metrics", "[metrics]\naddress = \"192.0.2.9:1338\"\n", By::all,
       "failed to get listener for metrics endpoint: listen tcp 192.0.2.9:0", false},
      {"another address, for gRPC", "[grpc]\ntcp_address = \"192.0.2.9:1338\"\n", By::all,
       "failed to get listener for TCP grpc endpoint: listen tcp 192.0.2.9:0", false},
      {"no certificate for gRPC",
       "[grpc]\ntcp_address = \"127.0.0.1:0\"\ntcp_tls_key = \"/no/key\"\ntcp_tls_cert = \"/no/cert\"\n",
       By::all, "open /no/cert"},
      {"a socket below a file", "[grpc]\naddress = \"/etc/hostname/c.sock\"\n", By::all,
       "mkdir /etc/hostname: not a directory", false},
      {"another socket below a file", "[ttrpc]\naddress = \"/etc/hostname/t.sock\"\n", By::all,
       "mkdir /etc/hostname: not a directory", false},
      {"a debug socket below a file", "[debug]\naddress = \"/etc/hostname/d.sock\"\n", By::all,
       "mkdir /etc/hostname: not a directory", false},
      {"a long socket", "[grpc]\naddress = \"/run/" + std::string(110, 'c') + "\"\n", By::all,
       "unix socket path too long", false},
      {"NRI", nri, By::none, ""},
      {"an NRI socket below a file", nri + "socket_path = \"/etc/hostname/nri.sock\"\n", By::since_1_7,
       "failed to create socket \"/etc/hostname/nri.sock\": mkdir /etc/hostname: not a directory"},
      {"NRI plugins below a file", nri + "plugin_path = \"/etc/hostname/nri\"\n", By::since_1_7,
       "failed to discover plugins in /etc/hostname/nri"},
      {"two servers at one address",
       "[metrics]\naddress = \"127.0.0.1:18338\"\n[grpc]\ntcp_address = \"localhost:18338\"\n", By::all,
       "listen tcp 127.0.0.1:18338: bind: address already in use", false},
      {"a server at the address of CRI's stream server",
       cri + "]\nstream_server_port = \"18338\"\n[metrics]\naddress = \":18338\"\n", By::all,
       "listen tcp 127.0.0.1:18338: bind: address already in use", false,
       "metrics endpoint: listen tcp :18338: bind: address already in use"},
      {"an address without a port, for metrics", "[metrics]\naddress = \"localhost\"\n", By::all,
       "listen tcp: address localhost: missing port in address", false},
      {"a path for metrics", "[metrics]\naddress = \"/run/m.sock\"\n", By::all,
       "listen tcp: address /run/m.sock: missing port in address"},
      {"another address, for debugging", "[debug]\naddress = \"192.0.2.9:1338\"\n", By::all,
       "failed to get listener for debug endpoint: listen tcp 192.0.2.9:0", false},
      {"a folder for a socket", "[debug]\naddress = \"/etc\"\n", By::all, "is a directory", false},
      {"addresses that the host has",
       "[metrics]\naddress = \"127.0.0.1:1338\"\n[debug]\naddress = \"/run/d.sock\"\n[grpc]\naddress = \"\"\n"
       "tcp_address = \"127.0.0.1:1339\"\nuid = 7\n",
       By::none, ""},
      // Refused before that.
      {"a root below a file", "root = \"/etc/hostname/root\"\n", By::all,
       "mkdir /etc/hostname: not a directory", false},
      {"a root behind a link that leads nowhere", "root = \"SCRATCH/nowhere\"\n", By::all,
       "/nowhere: file exists"},
      {"a folder for temporary files below a file", "temp = \"/etc/hostname/t\"\n", By::all,
       "mkdir /etc/hostname: not a directory", false},
      {"a level that the log does not have", "[debug]\nlevel = \"verbose\"\n", By::all,
       "not a valid logrus Level: \"verbose\""},
      {"a format that the log does not have", "[debug]\nformat = \"xml\"\n", By::all,
       "unknown log format: xml", false},
      {"a log in JSON", "[debug]\nlevel = \"TRACE\"\nformat = \"json\"\n", By::none, ""},
      {"a control group that there is not", "[cgroup]\npath = \"/no/such/group\"\n",
       has_cgroup_2 ? By::all : By::none, "no such file or directory", false},
      {"a required plugin with a folder", opt + "path = \"/no/such/opt\"\n", By::none, ""},
      {"a required plugin with a folder below a file", opt + "path = \"/etc/hostname/opt\"\n", By::all,
       "io.containerd.internal.v1.opt: mkdir /etc/hostname: not a directory", false},
      {"a folder for a plugin that CRI needs",
       "[plugins.\"io.containerd.content.v1.content\"]\npath = \"/data/content\"\n", By::none, ""},
      {"one folder for root and state", "root = \"/var/c\"\nstate = \"/var/c\"\n", By::all,
       "root and state must be different paths", false},
      {"a required plugin that there is not", "required_plugins = [\"io.containerd.foo.v1.bar\"]\n", By::all,
       "required plugin [io.containerd.foo.v1.bar] not included", false},
      {"a required plugin that is not set up",
       "required_plugins = [\"io.containerd.snapshotter.v1.devmapper\"]\n", By::all,
       "devmapper not configured", false},
      {"a file for a service that CRI needs",
       "[plugins.\"io.containerd.service.v1.tasks-service\"]\nrdt_config_file = \"/no/file\"\n", By::none,
       ""},
      {"a time that is none", "[timeouts]\n\"io.containerd.timeout.shim.load\" = \"5 fortnights\"\n", By::all,
       "5 fortnights", false},
      {"a text for a truth", runc + "privileged_without_host_devices = \"true\"\n", By::all, "bool"},
      {"a text for a number", "oom_score = \"x\"\n", By::all, "type int"},
      {"an integer for a real number", "[plugins.\"io.containerd.gc.v1.scheduler\"]\npause_threshold = 0\n",
       By::containerd_1, "Can't convert 0(int64) to float64"},
      {"a value for a section", "[plugins]\nversion = 999\n", By::containerd_1, "999(int64)"},
  };
}

TEST_F(RealTrial, SaysWhyCriWouldNotBeServed) {
  scratch.link("nowhere", "/no/such/folder");
  for (const auto& binary : test::containerd_binaries()) {
    const bool is_2 = binary.release.merges_sections();
    for (const Row& row : rows()) {
      SCOPED_TRACE(binary.release.text() + " " + row.what);
      std::string main = "version = 2\n" + row.lines;
      if (const auto at = main.find("SCRATCH"); at != std::string::npos)
        main.replace(at, 7, scratch.path().native());
      const auto fault = why(binary, main);
      const bool refused = refuses(binary.release, row.refused);
      ASSERT_EQ(!fault.reason.empty(), refused) << fault.reason;
      if (!refused) continue;
      const std::string words = row.what == std::string("a text for a number") && !is_2
                                    ? "Can't convert x(string) to int"
                                    : row.words;
      EXPECT_THAT(fault.reason,
                  testing::AnyOf(HasSubstr(words), HasSubstr(row.or_words.empty() ? words : row.or_words)));
      EXPECT_THAT(fault.reason, testing::Not(testing::ContainsRegex("[(][0-9]+, [0-9]+[)]|row [0-9]")))
          << "a place in a copy";
      if (row.has_line) {
        EXPECT_EQ(fault.place, place("config.toml", static_cast<int>(std::ranges::count(main, '\n'))));
      }
    }
  }
}

TEST_F(RealTrial, DoesWithoutADifferBehindASocket) {
  for (const auto& binary : test::containerd_binaries()) {
    if (binary.release.text().starts_with("1.6")) continue;  // it has no such proxies
    SCOPED_TRACE(binary.release.text());
    for (const char* differs : {"\"far\", \"walking\"", "\"far\""}) {
      const auto fault =
          why(binary, fmt::format("version = 2\n[proxy_plugins.far]\ntype = \"diff\"\n"
                                  "address = \"/run/far.sock\"\n"
                                  "[plugins.\"io.containerd.service.v1.diff-service\"]\ndefault = [{}]\n",
                                  differs));
      EXPECT_EQ(fault.reason, "");
    }
  }
}

TEST_F(RealTrial, TakesTheFilesTogetherAndNamesTheOneWithTheFault) {
  const std::string main = "version = 2\n" + std::string(kCri) + "]\nsandbox_image = \"pause\"\n";
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    const auto address = why(binary, {{"config.toml", main},
                                      {"a.toml", "version = 2\n"},
                                      {"b.toml", std::string("version = 2\n\n") + kCri +
                                                     "]\nstream_server_address = \"192.0.2.9\"\n"}});
    EXPECT_THAT(address.reason, HasSubstr("cannot assign requested address"));
    EXPECT_EQ(address.place, place("b.toml", 4));
    const auto type = why(binary, {{"config.toml", main},
                                   {"a.toml", std::string("version = 2\n# a comment\n\n") + kCri +
                                                  "]\nmax_container_log_line_size = \"many\"\n"}});
    EXPECT_EQ(type.place, place("a.toml", 5)) << type.reason;
  }
}

TEST_F(RealTrial, SaysWhyCriRefusesItsConfiguration) {
  const std::string mirrors = std::string(kCri) + ".registry]\nconfig_path = \"/etc/containerd/certs.d\"\n" +
                              kCri +
                              ".registry.mirrors.\"docker.io\"]\nendpoint = [\"https://mirror.example\"]\n";
  const std::string engine =
      std::string(kCri) + ".containerd.runtimes.runc]\n" + kRunc + "runtime_engine = \"/usr/bin/runc\"\n";
  for (const auto& binary : test::containerd_binaries()) {
    SCOPED_TRACE(binary.release.text());
    const bool is_1 = !binary.release.merges_sections();
    EXPECT_EQ(why(binary, "").reason, "");
    const auto twice = why(binary, "version = 2\n" + mirrors);
    EXPECT_THAT(twice.reason, HasSubstr("`mirrors` cannot be set when `config_path` is provided"));
    const auto cgroup = why(binary, std::string("version = 2\n") + kCri + "]\nsystemd_cgroup = true\n");
    EXPECT_EQ(!cgroup.reason.empty(), is_1) << "containerd 2 has no such key";
    EXPECT_EQ(!why(binary, "version = 2\n" + engine).reason.empty(), is_1) << "containerd 2 has no such key";
    const auto off = why(binary, "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n");
    EXPECT_EQ(off.reason, "its CRI plugin is not included, or is disabled");
  }
}

}  // namespace
}  // namespace ferry::kata
