// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/shown.h"
#include "cli/output/status_document.h"
#include "cli/output/status_text.h"
#include "cli/verbs/capture.h"
#include "cli/verbs/node_look.h"
#include "cli/verbs/verbs.h"
#include "cli/verbs/watch.h"
#include "common/text/counted.h"

namespace ferry::cli {
namespace {

Result<Shown> look(const Session& session) {
  const bool rows = session.output == OutputFormat::table;
  const auto sight = look_at_node(session, rows ? Depth::rows : Depth::all);
  if (!sight) return fail(Error(sight.error()));
  const host::NodePicture view = view_of(session, *sight);
  Shown shown;
  if (rows) {
    shown.text = status_text(view, canvas_of(session.out));
    shown.tinted = true;
  } else {
    shown.document = to_json(view);
    shown.document["iommufd"] = vfio::has_iommufd(*session.host);
  }
  return shown;
}

ExitStatus capture(const Session& session, const std::filesystem::path& to) {
  const auto captured = capture_host(*session.host, *session.writer, session.rules, to);
  if (!captured) return complain(captured.error());
  Shown shown;
  shown.document = {{"directory", to.string()},
                    {"files", captured->files},
                    {"links", captured->links},
                    {"bytes", captured->bytes},
                    {"left_out", captured->left_out}};
  constexpr std::uint64_t kKib = 1024;
  shown.text = fmt::format("{}: {}, {}, {} KiB\n", to.string(), counted(captured->files, "file"),
                           counted(captured->links, "link"), (captured->bytes + kKib - 1) / kKib);
  for (const std::string& left : captured->left_out) shown.text += "left out: " + left + "\n";
  shown.text += fmt::format("read it with `ferry --host-root {} status`\n", to.string());
  return print(session, shown);
}

}  // namespace

ExitStatus status_verb(const Session& session, const StatusOptions& options) {
  if (!options.capture.empty()) return capture(session, options.capture);
  if (options.watch) return watch(session, [&session] { return look(session); });
  const auto shown = look(session);
  return shown ? print(session, *shown) : complain(shown.error());
}

}  // namespace ferry::cli
