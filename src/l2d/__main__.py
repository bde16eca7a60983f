from l2d.commands.main import main

main()
