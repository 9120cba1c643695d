#compdef PROGRAM
# Completion of PROGRAM for zsh. To load it: source <(PROGRAM completion zsh)
_PROGRAM() {
  local line
  local -a candidates
  while IFS= read -r line; do
    candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( ${#candidates} )); then
    _describe PROGRAM candidates
  else
    _files
  fi
}
if [ "${funcstack[1]}" = _PROGRAM ]; then
  _PROGRAM "$@"
else
  compdef _PROGRAM PROGRAM
fi
