// SPDX-License-Identifier: Apache-2.0
// The words for error codes in messages between Ferry's processes.
#pragma once

#include "common/result.h"
#include "common/text/words.h"

namespace ferry {

/// A word per code, in JSON of `ferry dra` with hostd and of ferry-virt. Both ends are of one build or of two
/// successive ones, so a word may be added, and none may change.
inline constexpr Words<Errc, 10> kErrcWords = {{{"usage", Errc::usage},
                                                {"invalid_config", Errc::invalid_config},
                                                {"not_found", Errc::not_found},
                                                {"refused", Errc::refused},
                                                {"differs", Errc::differs},
                                                {"stuck", Errc::stuck},
                                                {"unreachable", Errc::unreachable},
                                                {"unsupported", Errc::unsupported},
                                                {"malformed_host", Errc::malformed_host},
                                                {"failed", Errc::failed}}};

}  // namespace ferry
