// The page of search results: the list at its side and the keys work as on the other pages.
import { startKeyboard } from "./keyboard.js";
import { startSidebar } from "./sidebar.js";

startSidebar();
startKeyboard();
