# Completion of PROGRAM for bash. To load it: source <(PROGRAM completion bash)
_PROGRAM_complete() {
  local line=${COMP_LINE:0:COMP_POINT} words last candidate
  read -ra words <<<"$line"
  case $line in *[[:space:]]) words+=("") ;; esac
  last=${words[${#words[@]} - 1]}
  COMPREPLY=()
  while IFS=$'\t' read -r candidate _; do
    # Readline replaces only what follows the "=".
    case $last in *=*) candidate=${candidate#*=} ;; esac
    COMPREPLY+=("$candidate")
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _PROGRAM_complete PROGRAM
