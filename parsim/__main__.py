from parsim.cli import main

main()
