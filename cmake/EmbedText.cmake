# Writes a .cpp with text files as string constants, so that the binary needs no files beside it.
#   cmake -DOUTPUT=x.cpp -DHEADER=a/b.h -DNAMESPACE=n -DFILES="kName=path|kOther=p1,p2" -P EmbedText.cmake
# Several paths of one name, joined by commas, are written one after the other.
set(text "// Made from text files by cmake/EmbedText.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
string(REPLACE "|" ";" entries "${FILES}")
foreach(entry IN LISTS entries)
  string(REGEX MATCH "^([^=]+)=(.*)$" matched "${entry}")
  set(name "${CMAKE_MATCH_1}")
  string(REPLACE "," ";" paths "${CMAKE_MATCH_2}")
  string(APPEND text "const char* const ${name} =")
  foreach(path IN LISTS paths)
    file(READ "${path}" content)
    string(APPEND text "\n    R\"embedded(${content})embedded\"")
  endforeach()
  string(APPEND text ";\n")
endforeach()
string(APPEND text "}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${text}")
