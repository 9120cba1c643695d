#compdef PROGRAM
# Completion of PROGRAM for zsh. To load it: source <(PROGRAM completion zsh)
_PROGRAM() {
  local word about
  local -a candidates
  while IFS=$'\t' read -r word about; do
    candidates+=("${word//:/\\:}${about:+:$about}")
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
