// SPDX-License-Identifier: Apache-2.0
// What CRI-O's own program says of a change, with a stand-in of it that prints as its sources have it.
#include <gmock/gmock.h>

#include "kata-manager/controller/found_runtime.h"
#include "kata-manager/controller/runtime_change.h"
#include "kata-manager/runtimes/crio.h"
#include "kata-manager/toml/toml.h"
#include "tests/kata-manager/stub_programs.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kFolder = "/etc/crio/crio.conf.d";
constexpr const char* kBuiltIn =
    "[crio.runtime]\npids_limit = -1\n"
    "[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/libexec/crio/crun\"\nruntime_type = \"oci\"\n";

class Crio : public testing::Test {
 protected:
  Crio() {
    scratch.file("etc/crio/crio.conf", "[crio.runtime]\ndefault_runtime = \"crun\"\n");
    scratch.file("usr/bin/crio", "");
    writer.programs["/usr/bin/crio"] = [this](const auto& arguments) { return config(arguments); };
  }

  /// Table by table what it comes to; what is as built in, and the runtimes while all are, as comments.
  Result<std::string> config(const std::vector<std::string>& arguments) {
    EXPECT_THAT(arguments,
                ElementsAre("--config", "/etc/crio/crio.conf", "--config-dir", kFolder.string(), "config"));
    const TomlTable built_in = must(parse_toml(kBuiltIn, "built in"));
    TomlTable all = built_in;
    ConfigFiles files(host);
    auto paths = must(files.glob(kFolder / "*"));
    paths.insert(paths.begin(), "/etc/crio/crio.conf");
    for (const auto& path : paths) {
      const auto read = parse_toml(files.read(path).value_or(""), path.string());
      if (!read) return fail(Errc::failed, "it ends with 1");
      merge_over(all, *read);
    }
    if (!extra.empty() && files.read(kFolder / "60-ferry-kata.conf"))
      merge_over(all, must(parse_toml(extra, "extra")));
    const auto with_ours = find(all, {"crio", "runtime", "runtimes"})->table();
    const auto without = find(built_in, {"crio", "runtime", "runtimes"})->table();
    const std::string mark = *with_ours == *without ? "# " : "";
    std::string out = "# The CRI-O configuration file.\n[crio]\n# root = \"/var/lib\"\n[crio.runtime]\n";
    for (const auto& [key, value] : *find(all, {"crio", "runtime"})->table()) {
      if (value.table() != nullptr) continue;
      const bool is_default = find(built_in, {"crio", "runtime", key}) != nullptr &&
                              *find(built_in, {"crio", "runtime", key}) == value;
      const std::string line = toml_text({}, {{key, value}});
      out += "\n# What " + key + " = is for.\n" + (is_default ? "# " : "") + line;
    }
    out +=
        "\n# The table of runtimes, such as:\n# [crio.runtime.runtimes.runtime-handler]\n#  runtime_path = "
        "\"/x\"\n";
    for (const auto& [name, entry] : *with_ours) {
      std::string lines = toml_text({"crio", "runtime", "runtimes", name}, *entry.table());
      out += "\n";
      for (std::size_t end = 0; !lines.empty(); lines.erase(0, end + 1)) {
        end = lines.find('\n');
        out += mark + lines.substr(0, end + 1);
      }
    }
    return out;
  }

  FoundRuntime found_runtime() {
    FoundRuntime out;
    out.place = must(runtime_place("cri-o"));
    out.program = "/usr/bin/crio";
    return out;
  }
  /// Planned, written, and asked.
  std::optional<std::string> fault(const std::vector<RuntimeHandler>& handlers) {
    const FoundRuntime runtime = found_runtime();
    const RuntimePlan plan = must(plan_runtime(host, runtime, handlers));
    const auto ask = config_dump_check(writer, runtime, plan, handlers);
    for (const FileChange& change : plan.changes) must(make(host, change));
    return must(ask());
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  test::StubPrograms writer;
  std::string extra;  // it reads beside ours, whyever
  std::vector<RuntimeHandler> ours = {
      {.name = "kata-a", .shim = "/opt/kata/bin/containerd-shim-kata-v2", .configuration = "/opt/a.toml"}};
};

TEST_F(Crio, ReadsWhatWasPlannedAndNothingElse) {
  EXPECT_EQ(fault(ours), std::nullopt) << "the built-in runtimes are no news";
  ours[0].configuration = "/opt/b.toml";
  EXPECT_EQ(fault(ours), std::nullopt);
  EXPECT_EQ(fault({}), std::nullopt);
  EXPECT_FALSE(host.exists("etc/crio/crio.conf.d/60-ferry-kata.conf"));
}

TEST_F(Crio, WhatElseWouldChangeIsAFault) {
  struct Row {
    const char* extra;
    const char* fault;
  };
  for (const Row& row :
       {Row{"[crio.runtime]\npids_limit = 7\n", "crio.runtime.pids_limit: absent, and would be 7"},
        Row{"[crio.runtime.runtimes.crun]\nruntime_path = \"/other\"\n",
            "crio.runtime.runtimes.crun.runtime_path: \"/usr/libexec/crio/crun\", and would be \"/other\""},
        Row{"[crio.runtime.runtimes.runsc]\nruntime_path = \"/r\"\n", "crio.runtime.runtimes.runsc"},
        Row{"[crio.runtime.runtimes.kata-a]\nruntime_type = \"oci\"\n",
            "runtime kata-a.runtime_type has another value"}}) {
    extra = row.extra;
    EXPECT_THAT(fault(ours).value_or("none"), HasSubstr(row.fault));
    scratch.remove("etc/crio/crio.conf.d/60-ferry-kata.conf");
  }
}

TEST_F(Crio, OneThatCannotReadThemIsAFault) {
  const FoundRuntime runtime = found_runtime();
  const RuntimePlan plan = must(plan_runtime(host, runtime, ours));
  const auto ask = config_dump_check(writer, runtime, plan, ours);
  EXPECT_EQ(must(ask()), "runtime kata-a is not there") << "nothing was written";
  scratch.file("etc/crio/crio.conf.d/99-late", "[crio\n");
  EXPECT_EQ(must(ask()), "it cannot read them");
}

TEST_F(Crio, OneThatCouldNotReadThemBeforeVerifiesNothing) {
  writer.programs["/usr/bin/crio"] = [](const auto&) -> Result<std::string> {
    return fail(Errc::failed, "it ends with 1");
  };
  const FoundRuntime runtime = found_runtime();
  EXPECT_FALSE(config_dump_check(writer, runtime, must(plan_runtime(host, runtime, ours)), ours));
}

TEST_F(Crio, WithoutItsProgramThePlanSaysSo) {
  FoundRuntime runtime = found_runtime();
  runtime.program.reset();
  runtime.no_program = "there is no /usr/bin/crio";
  EXPECT_THAT(
      must(plan_runtime(host, runtime, ours)).notes,
      ElementsAre(testing::AllOf(HasSubstr("only Ferry's model of CRI-O"), HasSubstr("no /usr/bin/crio"))));
}

TEST(CrioConfig, HasItsBuiltInRuntimesWhereTheyAreComments) {
  const auto read = [](const std::string& printed) {
    const TomlTable root = must(parse_toml(with_built_in_runtimes(printed), "crio config"));
    const TomlValue* runtimes = find(root, {"crio", "runtime", "runtimes"});
    return runtimes == nullptr ? TomlTable() : *runtimes->table();
  };
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("# [crio.network]\n# a = 1\n").empty());
  EXPECT_EQ(read("# [crio.runtime.runtimes.crun]\n# runtime_path = \"/c\"\n").at("crun"),
            (TomlValue{TomlTable{{"runtime_path", {std::string("/c")}}}}));
  EXPECT_EQ(read("# [crio.runtime.runtimes.crun]\n# a = 1\n# A sentence with b = 2\n# c = 3\n").at("crun"),
            (TomlValue{TomlTable{{"a", {std::int64_t{1}}}}}))
      << "a sentence ends it";
  EXPECT_EQ(read("# [crio.runtime.runtimes.crun]\n# a = 1\n\n# b = 2\n").at("crun"),
            (TomlValue{TomlTable{{"a", {std::int64_t{1}}}}}));
  EXPECT_EQ(read("# [crio.runtime.runtimes.x]\n#  a = 1\n").at("x"), TomlValue{TomlTable{}});
}

// Whatever it prints, it is TOML or an error.
TEST_F(Crio, PrintsSomethingElse) {
  for (const char* text :
       {"", "no TOML", "# [crio.runtime.runtimes.\n",
        "[crio.runtime.runtimes.a]\n# [crio.runtime.runtimes.a]\n", "# [crio.runtime.runtimes.a\n[crio]\n",
        "crio = 1\n", "[crio]\n# [crio.runtime.runtimes.a]\n# a = [\n"}) {
    writer.programs["/usr/bin/crio"] = [&](const auto&) { return Result<std::string>(text); };
    const auto said = crio_configuration(writer, "/usr/bin/crio", kFolder);
    if (!said) {
      EXPECT_EQ(said.error().code, Errc::invalid_config) << text;
    }
  }
  writer.programs["/usr/bin/crio"] = [&](const auto&) {
    return Result<std::string>("[crio.image]\npause = \"p\"\n# [crio.runtime.runtimes.a]\n# a = [\n");
  };
  const auto said = must(crio_configuration(writer, "/usr/bin/crio", kFolder));
  ASSERT_TRUE(said);
  EXPECT_NE(find(*said, {"image", "pause"}), nullptr) << "what is none is not lost by a comment";
}

}  // namespace
}  // namespace ferry::kata
