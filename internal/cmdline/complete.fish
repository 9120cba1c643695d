# Completion of PROGRAM for fish. To load it: PROGRAM completion fish | source
function __PROGRAM_complete
    set -l words (commandline -opc)
    $words[1] __complete $words[2..] (commandline -ct) 2>/dev/null
end
complete -c PROGRAM -a '(__PROGRAM_complete)'
