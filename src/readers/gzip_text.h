// Inflating of gzip data, piece by piece: by ISA-L where it was found (several times as fast), else
// by zlib.
#pragma once

#include <memory>

#include "readers/text_source.h"

namespace vitrine {

std::unique_ptr<TextSource> gzip_text_source(std::unique_ptr<TextSource> compressed);

}  // namespace vitrine
